//! Table of the processes that use a region, so that what a killed process held can be released.
//!
//! A *tag* identifies one registration of one process: the index of its table entry in the low 16 bits, and
//! the incarnation of the entry above. An entry is reused, with the next incarnation, only after its process
//! has died or left, so an old tag never names another process. The first word of an entry identifies the
//! process: 20 bits of incarnation, 44 of start time and process id (22 of each on Unix; see `platform`). One
//! compare-and-swap therefore assigns an entry.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ReplayError;
use crate::platform::{self, PROCESS_BITS, Process};
use crate::region::Cells;

/// Maximum number of processes that use one region at a time.
pub(super) const PROCESSES: usize = 256;
/// Words per entry: the process, and its pid namespace.
pub(super) const ENTRY_WORDS: usize = 2;

const INCARNATION_SHIFT: u32 = 44;
const START_BITS: u32 = INCARNATION_SHIFT - PROCESS_BITS;
const PROCESS_MASK: u64 = (1 << PROCESS_BITS) - 1;
const START_MASK: u64 = (1 << START_BITS) - 1;
const INDEX_BITS: u32 = 16;
/// Bits of a tag: those of an index and of an incarnation.
const TAG_BITS: u32 = INDEX_BITS + u64::BITS - INCARNATION_SHIFT;

/// The table, and the entry of this process in it.
pub(super) struct Processes {
    entries: Cells<std::sync::atomic::AtomicU64>,
    private: bool,
    /// Tag of this process, 0 if it has none, and above it the number of forks before it was registered. One
    /// word, so that of two threads of a forked child that register it at the same time one gives way.
    own: AtomicU64,
}

/// The word for a process with this tag after this number of forks.
fn own_word(tag: u64, forks: u32) -> u64 {
    u64::from(forks) << TAG_BITS | tag
}

/// The tag in such a word.
fn tag_of(own: u64) -> u64 {
    own & ((1 << TAG_BITS) - 1)
}

impl Processes {
    /// Opens the table in `entries` and registers this process. `private` memory is never seen by another
    /// process, except as a copy after a fork.
    pub(super) fn new(entries: Cells<AtomicU64>, private: bool) -> Result<Self, ReplayError> {
        let table = Self::unregistered(entries, private);
        table.register_now()?;
        Ok(table)
    }

    /// As [`Processes::new`], but does not register this process: nothing is written.
    pub(super) fn unregistered(entries: Cells<AtomicU64>, private: bool) -> Self {
        Self { entries, private, own: AtomicU64::new(own_word(0, crate::fork::count())) }
    }

    /// Removes all processes and registers this one. No other process has the region open.
    pub(super) fn forget_all(&self) -> Result<(), ReplayError> {
        for entry in self.entries.chunks(ENTRY_WORDS) {
            entry[1].store(0, Ordering::Relaxed);
            entry[0].fetch_and(!((1 << INCARNATION_SHIFT) - 1), Ordering::Relaxed);
        }
        self.register_now()
    }

    /// Registers this process, which is not registered yet.
    pub(super) fn register_now(&self) -> Result<(), ReplayError> {
        self.register(self.own.load(Ordering::Acquire)).map(|_| ())
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn entries(&self) -> &[AtomicU64] {
        &self.entries
    }

    /// Tag of this process, never 0. A forked child registers itself on first use.
    pub(super) fn tag(&self) -> Result<u64, ReplayError> {
        let own = self.own.load(Ordering::Acquire);
        match tag_of(own) {
            0 => Err(ReplayError::Closed),
            tag if own == own_word(tag, crate::fork::count()) => Ok(tag),
            _ => self.register(own),
        }
    }

    /// Returns true if this process is registered itself and did not only inherit the table by a fork.
    pub(super) fn is_registered(&self) -> bool {
        let own = self.own.load(Ordering::Acquire);
        tag_of(own) != 0 && own == own_word(tag_of(own), crate::fork::count())
    }

    /// Gives up the tag and returns it, if there is one. No operation of this process can start after that.
    pub(super) fn release_tag(&self) -> Option<u64> {
        if !self.is_registered() {
            return None;
        }
        let own = self.own.swap(own_word(0, crate::fork::count()), Ordering::AcqRel);
        Some(tag_of(own)).filter(|tag| *tag != 0)
    }

    /// Frees the entry. Nothing may be held under the tag any more.
    pub(super) fn free_entry(&self, tag: u64) {
        let entry = &self.entries[(tag & 0xffff) as usize * ENTRY_WORDS..][..ENTRY_WORDS];
        entry[1].store(0, Ordering::Release);
        // Keeps the incarnation, clears the rest.
        entry[0].fetch_and(!((1 << INCARNATION_SHIFT) - 1), Ordering::AcqRel);
    }

    /// Number of registered processes that are alive, including this one.
    pub(super) fn alive_count(&self) -> usize {
        (0..PROCESSES).filter(|&i| self.entry_alive(i)).count()
    }

    /// Returns true if the process with this tag is alive, or if that cannot be determined.
    pub(super) fn is_alive(&self, tag: u64) -> bool {
        let index = (tag & 0xffff) as usize;
        if index >= PROCESSES {
            return false;
        }
        let word = self.entries[index * ENTRY_WORDS].load(Ordering::Acquire);
        word >> INCARNATION_SHIFT == tag >> INDEX_BITS && self.entry_alive(index)
    }

    fn entry_alive(&self, index: usize) -> bool {
        let entry = &self.entries[index * ENTRY_WORDS..][..ENTRY_WORDS];
        let word = entry[0].load(Ordering::Acquire);
        let number = word & PROCESS_MASK;
        if number == 0 {
            return false;
        }
        if self.private {
            return number == platform::process_number(std::process::id());
        }
        let namespace = entry[1].load(Ordering::Acquire);
        if namespace != 0 && namespace != platform::process_namespace() {
            return true; // Its id means nothing here, so it counts as alive.
        }
        let started = word >> PROCESS_BITS & START_MASK;
        match platform::process(platform::process_id(number)) {
            Process::Ended => false,
            Process::Running(start) => start.is_none_or(|start| start & START_MASK == started),
        }
    }

    /// Registers this process, unless another of its threads has replaced `before` in the meantime.
    fn register(&self, before: u64) -> Result<u64, ReplayError> {
        let now = crate::fork::count();
        let who = identity(platform::own_start().unwrap_or(0), std::process::id());
        for index in 0..PROCESSES {
            let entry = &self.entries[index * ENTRY_WORDS..][..ENTRY_WORDS];
            let old = entry[0].load(Ordering::Acquire);
            if self.entry_alive(index) {
                continue;
            }
            // Counts from 1 to 2^20 - 1 and then from 1 again, so that a tag is never 0.
            let incarnation = (old >> INCARNATION_SHIFT) % ((1 << (64 - INCARNATION_SHIFT)) - 1) + 1;
            let new = incarnation << INCARNATION_SHIFT | who;
            if entry[0].compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                entry[1].store(platform::process_namespace(), Ordering::Release);
                let tag = incarnation << INDEX_BITS | index as u64;
                let own = own_word(tag, now);
                let is_first = self.own.compare_exchange(before, own, Ordering::AcqRel, Ordering::Relaxed);
                if is_first.is_err() {
                    self.free_entry(tag);
                    return self.tag();
                }
                return Ok(tag);
            }
        }
        Err(ReplayError::TooManyProcesses { max: PROCESSES })
    }
}

/// The bits of an entry that identify a process.
fn identity(start: u64, id: u32) -> u64 {
    (start & START_MASK) << PROCESS_BITS | platform::process_number(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;
    use std::sync::Arc;

    fn table(private: bool) -> Processes {
        let region = Arc::new(Region::heap(PROCESSES * ENTRY_WORDS * 8).unwrap());
        Processes::new(Cells::in_region(&region, 0, PROCESSES * ENTRY_WORDS).unwrap(), private).unwrap()
    }

    fn sleeping() -> std::process::Child {
        std::process::Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn start_of(child: &std::process::Child) -> u64 {
        let Process::Running(Some(start)) = platform::process(child.id()) else {
            panic!("the child has ended")
        };
        start
    }

    #[test]
    fn own_tag_is_alive_until_left() {
        let table = table(false);
        let tag = table.tag().unwrap();
        assert!(tag != 0 && table.is_alive(tag));
        assert_eq!(table.alive_count(), 1);
        assert_eq!(table.release_tag(), Some(tag));
        assert_eq!(table.release_tag(), None);
        table.free_entry(tag);
        assert!(!table.is_alive(tag));
        assert!(matches!(table.tag(), Err(ReplayError::Closed)));
    }

    /// As in a forked child in which two threads use the replay for the first time.
    #[test]
    fn threads_that_register_a_process_at_once_get_one_tag() {
        let table = table(false);
        let inherited = table.own.load(Ordering::Relaxed);
        let tags: Vec<u64> = (0..3).map(|_| table.register(inherited).unwrap()).collect();
        assert!(tags[0] != tag_of(inherited) && tags == [tags[0]; 3]);
        assert_eq!(table.tag().unwrap(), tags[0]);
        // That of the parent and one of the child.
        assert_eq!(table.alive_count(), 2);
        // One that comes after the replay was closed does not open it again.
        table.free_entry(table.release_tag().unwrap());
        assert!(matches!(table.register(inherited), Err(ReplayError::Closed)));
    }

    #[test]
    fn a_killed_child_is_dead_even_as_a_zombie_and_its_entry_is_used_again() {
        let table = table(false);
        let mut child = sleeping();
        let entry = &table.entries[5 * ENTRY_WORDS..][..ENTRY_WORDS];
        let who = identity(start_of(&child), child.id());
        entry[0].store(7 << INCARNATION_SHIFT | who, Ordering::Release);
        let tag = 7 << INDEX_BITS | 5;
        assert!(table.is_alive(tag));
        assert!(!table.is_alive(6 << INDEX_BITS | 5), "an earlier incarnation is dead");
        child.kill().unwrap();
        // Not waited for: it stays a zombie, for whose pid signal 0 still succeeds.
        let dead = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !table.is_alive(tag)
        });
        assert!(dead);
        child.wait().unwrap();
    }

    #[test]
    fn a_reused_pid_is_not_the_same_process() {
        let table = table(false);
        let mut child = sleeping();
        let entry = &table.entries[3 * ENTRY_WORDS..][..ENTRY_WORDS];
        let who = identity(start_of(&child).wrapping_add(1), child.id());
        entry[0].store(1 << INCARNATION_SHIFT | who, Ordering::Release);
        assert!(!table.is_alive(1 << INDEX_BITS | 3));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
