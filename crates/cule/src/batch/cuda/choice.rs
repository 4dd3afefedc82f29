//! Form and window with which a game runs on a device. Host only.

use super::windows::BEST_WINDOWS;
use crate::CuleError;
use crate::env::warp_schedule;

/// How the lanes of a warp run their consoles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Form {
    /// Each lane runs its own instructions.
    Plain = warp_schedule::FORM_PLAIN,
    /// Lanes at the same instruction run together.
    Grouped = warp_schedule::FORM_GROUPED,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Grouped];

    /// Name of the form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Grouped => "grouped",
        }
    }

    /// The form with this name, or `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }
}

/// Form and window of one game. They affect the speed only: all choices give the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// How the lanes of a warp run their consoles.
    pub form: Form,
    /// A window of the key has `1 << window` picture rows. Used by [`Form::Grouped`] only.
    pub window: u32,
}

impl Default for Choice {
    /// The grouped form with windows of 16 rows: a good choice for unknown programs.
    fn default() -> Self {
        Self { form: Form::Grouped, window: 4 }
    }
}

/// Windows that are measured: 1, 4 and 16 rows, and the whole picture. Others differ too little from these.
pub const WINDOWS: [u32; 4] = [0, 2, 4, 9];

impl Choice {
    /// All valid choices.
    pub fn all() -> Vec<Self> {
        let grouped = WINDOWS.map(|window| Self { form: Form::Grouped, window });
        [&grouped[..], &[Self { form: Form::Plain, window: 0 }]].concat()
    }

    /// The choice for a game whose form is not measured: the window with the fewest instructions.
    pub fn of_game(name: &str) -> Self {
        let window = BEST_WINDOWS.iter().find(|(_, games)| games.contains(&name)).map(|&(window, _)| window);
        window.map_or_else(Self::default, |window| Self { form: Form::Grouped, window })
    }

    /// The choice with this form and window.
    ///
    /// # Errors
    /// [`CuleError::Setting`] if there is no such form, or the form does not have this window.
    pub fn named(form: &str, window: u32) -> Result<Self, CuleError> {
        let found = Form::from_name(form).map(|form| Self { form, window });
        found.filter(|choice| Self::all().contains(choice)).ok_or_else(|| CuleError::Setting {
            name: "form",
            value: format!("{form}, window {window}"),
            bound: "grouped with window 0, 2, 4 or 9, or plain with window 0",
        })
    }

    /// Converts to the two words that the kernels read.
    pub(super) fn words(self) -> [u32; 2] {
        [self.form as u32, self.window]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_game_has_a_window() {
        let all =
            BEST_WINDOWS.iter().flat_map(|(window, games)| games.iter().map(move |game| (*game, *window)));
        for (game, window) in all.clone() {
            assert!(crate::console::game_row(game).is_ok() && WINDOWS.contains(&window), "{game}: {window}");
            assert_eq!(Choice::of_game(game), Choice { form: Form::Grouped, window });
        }
        let games: std::collections::BTreeSet<&str> = all.map(|(game, _)| game).collect();
        assert_eq!(games.len(), crate::games::table::UNKNOWN);
        assert_eq!(Choice::of_game("unknown"), Choice::default());
    }

    #[test]
    fn names_are_those_of_what_there_is() {
        for choice in Choice::all() {
            assert_eq!(Choice::named(choice.form.name(), choice.window).unwrap(), choice);
        }
        for (form, window) in [("grouped", 3), ("grouped", 10), ("plain", 4), ("predicated", 0), ("odd", 0)] {
            let error = Choice::named(form, window).unwrap_err().to_string();
            assert!(error.contains(&format!("{form}, window {window}")), "{error}");
        }
        // The message lists all windows.
        let error = Choice::named("odd", 0).unwrap_err().to_string();
        let all = WINDOWS.map(|window| window.to_string());
        assert!(error.contains(&format!("window {} or {}", all[..3].join(", "), all[3])), "{error}");
    }
}
