//! Instructions in the console's RAM. Programs change their bytes, so each is decoded when it is executed, into
//! a record of `Context::ram_records`. The function of all these records is [`in_ram`].

use super::code::decode_in_ram;
use super::handlers::HANDLERS;
use super::{Context, RESERVE, Record, leave, slow};

/// Addresses of instructions that the chain executes; no instruction from there on ends beyond the RAM.
pub const ADDRESSES: std::ops::RangeInclusive<u32> = 0x80..=0xFC;
/// Bytes of RAM, and so the number of records.
const RECORDS: usize = 128;

/// The target of `JMP` if these are its bytes and its target is in `ADDRESSES`.
#[inline]
pub(super) fn jump_target([opcode, low, high]: [u8; 3]) -> Option<u32> {
    let target = u32::from(low) | u32::from(high) << 8;
    (opcode == 0x4C && ADDRESSES.contains(&target)).then_some(target)
}

impl Context {
    /// Returns the record of an address in `ADDRESSES`. The bank that the cartridge has selected is mapped.
    pub(super) fn ram_record(&mut self, address: u32) -> *const Record {
        if self.ram_records.is_empty() {
            self.ram_records = vec![Record { function: in_ram::<false>, operand: 0, extra: 0 }; RECORDS];
        }
        let ip = self.ram_records.as_ptr().wrapping_add((address & 0x7F) as usize);
        // As `jump`: `pc` counts from the mapped bank's records.
        let place = (ip as usize).wrapping_sub(self.window_records as usize) / size_of::<Record>();
        self.pc_base = address.wrapping_sub(place as u32);
        ip
    }
}

chain! {
    /// Executes the instruction in RAM whose record is at `ip`.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`); `ip` points to a record of `Context::ram_records`.
    unsafe fn in_ram[const S: bool](k, ip, xy, a, cn, f) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let address = k.pc::<S>(ip);
            let bytes = std::array::from_fn(|i| k.m.riot.ram[(address as usize + i) & 0x7F]);
            if !ADDRESSES.contains(&address) {
                return slow::<S>(k, ip, xy, a, cn, f);
            }
            let place = (address & 0x7F) as usize;
            if let Some(target) = jump_target(bytes) {
                k.ram_records[place].operand = target;
                return jump::<S>(k, ip, xy, a, cn, f);
            }
            let Some((number, record)) = decode_in_ram(&k.m.cart, address, bytes) else {
                return slow::<S>(k, ip, xy, a, cn, f);
            };
            (k.ram_records[place].operand, k.ram_records[place].extra) = record;
            HANDLERS::<S>::TABLE[number](k, ip, xy, a, cn, f)
        }
    }
}

chain! {
    /// `JMP` to an address in `ADDRESSES`.
    ///
    /// # Safety
    /// As for all functions of the chain (see `handlers`); `jump_target` has returned the operand.
    pub(super) unsafe fn jump[const S: bool](k, ip, xy, a, cn, f) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !k.runs_ram {
                return slow::<S>(k, ip, xy, a, cn, f);
            }
            // Three cycles, and one instruction less that is left.
            let cn = cn.wrapping_add((3 << 16) - 1);
            let target = (*ip).operand;
            let ip = k.ram_record(target);
            if cfg!(debug_assertions) || (cn as u16) < RESERVE {
                return leave::<S>(k, ip, xy, a, cn, f);
            }
            in_ram::<S>(k, ip, xy, a, cn, f)
        }
    }
}
