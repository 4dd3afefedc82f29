//! Sound: the two channels of the TIA, as ale-py's `getAudio` returns them. Host only.
//!
//! Each `act` ends with [`SAMPLES`] samples, made from the sound registers as they are after its last frame.
//! When a register was written within a frame makes no difference. The channels go on from act to act: resets
//! of the console do not change them, saved states do not contain them.
//!
//! A channel is a divider (5 bits), a noise register (5 bits) and a pulse register (4 bits), which shift
//! right. Bit 0 of the pulse register is the output. Source: the sound chapters of the Stella Programmer's
//! Guide and of the TIA hardware manual; start values, feedback and mixing from comparisons with ale-py
//! (`tests/atari/sound.py`).

/// Samples per act.
pub const SAMPLES: usize = 512;
/// The value of a sample while both channels are silent.
pub const SILENCE: u8 = 128;
/// Difference of a sample per unit of volume.
const VOLUME_STEP: u8 = 4;

/// The last values written to AUDC0, AUDC1, AUDF0, AUDF1, AUDV0 and AUDV1, and two bytes of padding
/// (`machine::Board::sound`).
pub type Registers = [u8; 8];

/// Noise and pulse register at power-on: the highest bit of each is set.
const START: u16 = state(0b10000, 0b1000);

/// Noise and pulse register as one number.
const fn state(noise: u16, pulse: u16) -> u16 {
    noise << 4 | pulse
}

/// The state after one clock of a channel, per control and state.
static NEXT: [[u16; 512]; 16] = next_states();

const fn next_states() -> [[u16; 512]; 16] {
    let mut table = [[0; 512]; 16];
    let mut control = 0;
    while control < 16 {
        let mut from = 0;
        while from < 512 {
            table[control][from] = next_state(control as u16, from as u16);
            from += 1;
        }
        control += 1;
    }
    table
}

/// One clock of a channel whose control (AUDC) is `control`.
const fn next_state(control: u16, from: u16) -> u16 {
    let control = if control == 11 { 0 } else { control };
    let (old, pulse) = (from >> 4, from & 15);
    let uses_noise = control & 2 != 0 || control == 8 || control == 9;
    let noise = if !uses_noise {
        old
    } else if control == 8 {
        // Nine bits: both registers are one.
        old >> 1 | (if from == 0 { 1 } else { (old ^ pulse) & 1 }) << 4
    } else {
        old >> 1 | (if old == 0 { 1 } else { (old ^ old >> 2) & 1 }) << 4
    };
    let pulse_moves = match control & 3 {
        2 => noise & 0b11110 == 0b00010,
        3 => noise & 1 != 0,
        _ => true,
    };
    if !pulse_moves {
        return state(noise, pulse);
    }
    let entering = match control {
        0 => 1,
        1..=3 => {
            if pulse == 0 {
                1
            } else {
                (pulse ^ pulse >> 1) & 1
            }
        }
        4..=7 => !pulse >> 3 & 1,
        8 | 9 => old & 1,
        10 => noise & 1,
        _ => (pulse & 0b0010 == 0 && pulse & 0b1100 != 0) as u16,
    };
    let rest = if control >= 12 { !(pulse >> 1) & 0b0111 } else { pulse >> 1 };
    state(noise, rest | entering << 3)
}

/// One of the two channels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Channel {
    divider: u8,
    /// Noise and pulse register.
    state: u16,
}

impl Channel {
    /// Advances by one clock per sample, and adds to each sample what the channel contributes.
    fn add(&mut self, control: u8, frequency: u8, volume: u8, samples: &mut [u8]) {
        let next = &NEXT[usize::from(control)];
        let mut rest = samples;
        // A divider that is above a new frequency clocks at once.
        let mut held = usize::from(frequency.saturating_sub(self.divider));
        loop {
            let level = if self.state & 1 != 0 { VOLUME_STEP * volume } else { 0 };
            let (same, after) = rest.split_at_mut(held.min(rest.len()));
            if level != 0 {
                same.iter_mut().for_each(|sample| *sample += level);
            }
            self.divider += same.len() as u8;
            if after.is_empty() {
                return;
            }
            self.state = next[usize::from(self.state)];
            self.divider = 0;
            let level = if self.state & 1 != 0 { VOLUME_STEP * volume } else { 0 };
            after[0] += level;
            rest = &mut after[1..];
            held = usize::from(frequency);
        }
    }
}

/// The sound of one console.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// The registers, while the console is not on a board.
    pub registers: Registers,
    channels: [Channel; 2],
    /// The samples of the last acts, oldest first.
    samples: Vec<u8>,
}

impl Sound {
    /// The sound of a console that has just been switched on. It keeps the samples of `acts` acts; those of
    /// acts that have not run are 0, as in ale-py.
    pub fn new(acts: usize) -> Self {
        Self {
            registers: [0; 8],
            channels: [Channel { divider: 0, state: START }; 2],
            samples: vec![0; acts * SAMPLES],
        }
    }

    /// A copy that keeps the samples of `acts` acts.
    pub fn with_acts(&self, acts: usize) -> Self {
        let mut samples = vec![0; acts * SAMPLES];
        let common = samples.len().min(self.samples.len());
        let (to, from) = (samples.len() - common, self.samples.len() - common);
        samples[to..].copy_from_slice(&self.samples[from..]);
        Self { samples, ..*self }
    }

    /// The samples of the last acts, oldest first; the last [`SAMPLES`] are those of the last act.
    pub fn samples(&self) -> &[u8] {
        &self.samples
    }

    /// Makes the samples of an act, after its frames.
    pub fn act(&mut self, registers: &Registers) {
        self.samples.copy_within(SAMPLES.., 0);
        let newest = self.samples.len() - SAMPLES;
        let samples = &mut self.samples[newest..];
        samples.fill(SILENCE);
        for (i, channel) in self.channels.iter_mut().enumerate() {
            let [control, frequency, volume] = [registers[i], registers[2 + i], registers[4 + i]];
            channel.add(control & 15, frequency & 31, volume & 15, samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output bits of one channel from power-on, at frequency 0.
    fn bits(control: u8, count: usize) -> String {
        let mut channel = Channel { divider: 0, state: START };
        let mut samples = vec![0; count];
        channel.add(control, 0, 1, &mut samples);
        samples.iter().map(|&sample| if sample == VOLUME_STEP { '1' } else { '0' }).collect()
    }

    #[test]
    fn controls_have_their_patterns() {
        assert_eq!(bits(0, 16), "0011111111111111");
        assert_eq!(bits(11, 16), "0011111111111111");
        // Four bits: s(t + 4) = s(t) xor s(t + 1), period 15.
        assert_eq!(bits(1, 30), "001001101011110001001101011110");
        // Halves.
        assert_eq!(bits(4, 8), "00101010");
        // Nine bits: s(t + 9) = s(t) xor s(t + 4), period 511.
        let nine = bits(8, 1100);
        let nine = nine.as_bytes();
        assert!((0..1000).all(|t| (nine[t + 9] ^ b'0') == nine[t] ^ nine[t + 4]));
        assert!((0..500).all(|t| nine[t] == nine[t + 511]));
        // Divides by 6.
        assert_eq!(bits(12, 12), "100011100011");
    }

    #[test]
    fn every_split_of_the_samples_gives_the_same_sound() {
        for (control, frequency) in [(8, 0), (3, 5), (15, 31), (12, 1)] {
            let start = Channel { divider: 0, state: START };
            let (mut whole, mut parts) = (start, start);
            let (mut at_once, mut pieces) = (vec![0; 700], vec![0; 700]);
            whole.add(control, frequency, 15, &mut at_once);
            for piece in pieces.chunks_mut(7) {
                parts.add(control, frequency, 15, piece);
            }
            assert_eq!((whole, at_once), (parts, pieces), "AUDC {control}, AUDF {frequency}");
        }
    }

    #[test]
    fn a_smaller_frequency_than_the_divider_clocks_at_once() {
        let mut channel = Channel { divider: 9, state: state(0b10000, 0b0010) };
        let mut samples = [0; 4];
        channel.add(4, 3, 2, &mut samples);
        assert_eq!((samples, channel.divider), ([8; 4], 3));
    }

    #[test]
    fn acts_shift_the_kept_samples() {
        let registers = [4, 12, 3, 0, 15, 7, 0, 0];
        let (mut one, mut three) = (Sound::new(1), Sound::new(3));
        let mut all = vec![];
        for _ in 0..5 {
            one.act(&registers);
            three.act(&registers);
            all.extend_from_slice(one.samples());
        }
        assert_eq!(three.samples(), &all[2 * SAMPLES..]);
        assert_eq!(three.with_acts(1), one);
        assert!(all.contains(&(SILENCE + 4 * (15 + 7))) && all.contains(&SILENCE));
    }
}
