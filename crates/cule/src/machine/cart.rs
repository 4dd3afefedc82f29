//! Cartridges: eight ROM segments of 1 KiB, the hotspots of each bank-switching scheme, cartridge RAM.
//!
//! Reads inside `plain_low..plain_high` of the 4 KiB window are plain ROM, looked up in the segment table;
//! all others go through `read_special`. Segments 0-3 map addresses with A13 = 0, segments 4-7 those with A13
//! = 1: they differ in the FE scheme only. The display processor of the DPC scheme is in `dpc.rs`.
//!
//! Device subset.

use bytemuck::{Pod, Zeroable};

use super::{Board, LARGE_RAM_BYTES, Machine, dpc};

pub const KIND_2K: u8 = 0;
pub const KIND_4K: u8 = 1;
pub const KIND_F8: u8 = 2;
pub const KIND_F8SC: u8 = 3;
pub const KIND_F6: u8 = 4;
pub const KIND_F6SC: u8 = 5;
pub const KIND_E0: u8 = 6;
pub const KIND_FE: u8 = 7;
pub const KIND_DPC: u8 = 8;
pub const KIND_F4: u8 = 9;
pub const KIND_F4SC: u8 = 10;
pub const KIND_FA: u8 = 11;
pub const KIND_E7: u8 = 12;
pub const KIND_3F: u8 = 13;
pub const KIND_3E: u8 = 14;
pub const KIND_UA: u8 = 15;
pub const KIND_CV: u8 = 16;
pub const KIND_MB: u8 = 17;
pub const KIND_0840: u8 = 18;
pub const KIND_F8_LOW: u8 = 19;

/// Number of 1 KiB blocks in a bank of 4 KiB.
const BANK: u32 = 4;
/// Bytes of a segment.
pub const SEGMENT_BYTES: u32 = 0x400;
/// RAM of a superchip.
pub const SUPERCHIP_BYTES: u32 = 128;
/// CV images of this size contain the initial content of their RAM.
const CV_WITH_RAM_BYTES: u32 = 4096;
/// E7: offset in `Board::ram` of the four pages of the second RAM.
const E7_PAGES: u32 = 1024;

/// Bank state and small cartridge RAM.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
pub struct Cart {
    /// RAM of a superchip, or the registers of the display processor (`dpc.rs`).
    pub ram: [u8; 128],
    /// DPC: elapsed fraction of a music clock, as the bits of an `f64`, lower half first. Two words, so that
    /// a machine can be placed at any multiple of four bytes.
    pub fraction: [u32; 2],
    /// DPC: cycle up to which the music has been computed.
    pub music_at: u32,
    /// Bytes of the padded ROM image.
    pub rom_bytes: u32,
    /// For each segment, the index of a 1 KiB block of the image.
    pub segment: [u16; 8],
    /// First offset of plain ROM in the window.
    pub plain_low: u16,
    /// Offset after the last byte of plain ROM in the window.
    pub plain_high: u16,
    /// One of the `KIND_` constants.
    pub kind: u8,
    /// The cartridge also responds to addresses below $1000.
    pub claims: u8,
    /// 3E, E7: 1 + the RAM bank in the lower window, 0 = ROM.
    pub ram_bank: u8,
    /// E7: page of the second RAM.
    pub ram_page: u8,
}

/// Returns a cartridge after loading, before the first console reset.
pub fn new(kind: u8, rom_bytes: u32) -> Cart {
    let mut cart: Cart = Cart {
        ram: [0; 128],
        fraction: [0; 2],
        music_at: 0,
        rom_bytes,
        segment: [0; 8],
        plain_low: 0,
        plain_high: 0,
        kind,
        claims: 0,
        ram_bank: 0,
        ram_page: 0,
    };
    cart.plain_low = match kind {
        KIND_F8SC | KIND_F6SC | KIND_F4SC => 0x100,
        KIND_FA => 0x200,
        KIND_DPC => 0x080,
        KIND_3F => 0x040,
        KIND_3E | KIND_CV => 0x800,
        KIND_E7 => 0xA00,
        _ => 0,
    };
    cart.plain_high = match kind {
        KIND_F8 | KIND_F8SC | KIND_FA | KIND_F8_LOW => 0xFF8,
        KIND_F6 | KIND_F6SC => 0xFF6,
        KIND_F4 | KIND_F4SC => 0xFF4,
        KIND_E0 | KIND_E7 => 0xFE0,
        KIND_MB => 0xFF0,
        KIND_DPC => 0xFC0,
        KIND_0840 => 0,
        _ => 0x1000,
    };
    cart.claims = match kind {
        KIND_3F | KIND_3E | KIND_UA => 1,
        _ => 0,
    };
    if kind == KIND_DPC {
        dpc::power_on(&mut cart);
    }
    cart
}

/// Bytes of ROM that are always mapped together: what fills the window if a scheme switches all of it, and a segment
/// otherwise.
pub fn bank_bytes(kind: u8) -> u32 {
    match kind {
        KIND_2K => 0x800,
        KIND_4K | KIND_F8 | KIND_F8SC | KIND_F8_LOW | KIND_F6 | KIND_F6SC | KIND_F4 | KIND_F4SC | KIND_FA
        | KIND_MB | KIND_DPC => 0x1000,
        _ => SEGMENT_BYTES,
    }
}

/// True if a cartridge of this kind can map these segments.
#[cfg(not(device))]
pub fn can_map(cart: &Cart) -> bool {
    let segment: [u32; 8] = cart.segment.map(u32::from);
    let mirrored: bool = segment[..4] == segment[4..];
    let in_rom: bool = segment.iter().all(|&block| block < cart.rom_bytes / SEGMENT_BYTES);
    let whole_bank: bool = segment[0] % BANK == 0 && (0..4).all(|i| segment[i] == segment[0] + i as u32);
    in_rom
        && match cart.kind {
            KIND_2K => segment == [0, 1, 0, 1, 0, 1, 0, 1],
            KIND_FE => segment == [4, 5, 6, 7, 0, 1, 2, 3],
            KIND_E0 => mirrored && segment[3] == 7,
            kind => bank_bytes(kind) == SEGMENT_BYTES || mirrored && whole_bank,
        }
}

/// Bytes of cartridge RAM in `Board::ram`.
pub fn large_ram_bytes(cart: &Cart) -> u32 {
    match cart.kind {
        KIND_FA => 256,
        KIND_E7 => 2048,
        KIND_CV => 1024,
        KIND_3E => LARGE_RAM_BYTES as u32,
        _ => 0,
    }
}

/// True when the 128 bytes of `Cart::ram` are RAM.
pub fn is_superchip(cart: &Cart) -> bool {
    cart.kind == KIND_F8SC || cart.kind == KIND_F6SC || cart.kind == KIND_F4SC
}

/// Number of draws of the core generator that a console reset uses to fill cartridge RAM.
pub fn reset_draws(cart: &Cart) -> u32 {
    if is_superchip(cart) {
        return SUPERCHIP_BYTES;
    }
    if cart.kind == KIND_CV && cart.rom_bytes == CV_WITH_RAM_BYTES {
        return 0;
    }
    large_ram_bytes(cart)
}

/// Stores draw number `i` of a console reset in cartridge RAM.
pub fn fill(cart: &mut Cart, board: &mut Board, i: u32, value: u8) {
    if is_superchip(cart) {
        cart.ram[(i & 127) as usize] = value;
    } else {
        board.ram[(i as usize) % LARGE_RAM_BYTES] = value;
    }
}

/// Resets the cartridge. The caller has filled its RAM.
pub fn reset(cart: &mut Cart, board: &mut Board, rom: &[u8]) {
    cart.ram_bank = 0;
    cart.ram_page = 0;
    let last: u32 = cart.rom_bytes / SEGMENT_BYTES;
    match cart.kind {
        KIND_2K => {
            for i in 0..8 {
                cart.segment[i] = (i & 1) as u16;
            }
        }
        KIND_FE => {
            for i in 0..8 {
                cart.segment[i] = ((i & 3) + (4 - (i & 4))) as u16;
            }
        }
        KIND_E0 => {
            for i in 0..8 {
                cart.segment[i] = (4 + (i & 3)) as u16;
            }
        }
        KIND_3F | KIND_3E => {
            select_half(cart, 0, 0);
            select_half(cart, 1, last - 2);
        }
        KIND_E7 => {
            select_half(cart, 0, 0);
            select_half(cart, 1, 14);
        }
        KIND_CV => {
            select_half(cart, 0, last - 2);
            select_half(cart, 1, last - 2);
            if cart.rom_bytes == CV_WITH_RAM_BYTES {
                for i in 0..1024 {
                    board.ram[i] = rom[i];
                }
            }
        }
        KIND_F8 | KIND_F8SC | KIND_DPC | KIND_MB => {
            select_bank(cart, 1);
        }
        KIND_FA => {
            select_bank(cart, 2);
        }
        _ => {
            select_bank(cart, 0);
        }
    }
    cart.music_at = 0;
    cart.fraction = [0, 0];
}

/// Subtracts `cycles` from every stored time.
pub fn rebase(cart: &mut Cart, cycles: u32) {
    cart.music_at = cart.music_at.wrapping_sub(cycles);
}

/// Maps a bank of 4 KiB.
pub fn select_bank(cart: &mut Cart, bank: u32) {
    for i in 0..8 {
        cart.segment[i] = (bank * BANK) as u16 + (i & 3) as u16;
    }
}

/// Maps 2 KiB, from block `block` on, to the lower or upper half of the window.
fn select_half(cart: &mut Cart, half: u32, block: u32) {
    for i in 0..2 {
        let at: usize = (2 * half) as usize + i;
        cart.segment[at] = block as u16 + i as u16;
        cart.segment[at + 4] = block as u16 + i as u16;
    }
}

/// True if a read at `offset` of the window has no side effect and is served by the segment table.
pub fn is_plain(cart: &Cart, offset: u32) -> bool {
    offset >= cart.plain_low as u32 && offset < cart.plain_high as u32
}

/// Returns the ROM byte that the segment table maps to `address`.
pub fn read_segment(cart: &Cart, rom: &[u8], address: u32) -> u32 {
    let segment: usize = (address >> 10 & 3 | address >> 11 & 4) as usize;
    let at: u32 = cart.segment[segment] as u32 * SEGMENT_BYTES + (address & (SEGMENT_BYTES - 1));
    rom[at as usize] as u32
}

/// Switches banks if `offset` is a hotspot of the scheme.
pub fn access_hotspot(cart: &mut Cart, offset: u32) {
    match cart.kind {
        KIND_F8 | KIND_F8SC | KIND_DPC | KIND_F8_LOW => {
            if offset == 0xFF8 || offset == 0xFF9 {
                select_bank(cart, offset - 0xFF8);
            }
        }
        KIND_F6 | KIND_F6SC => {
            if offset >= 0xFF6 && offset <= 0xFF9 {
                select_bank(cart, offset - 0xFF6);
            }
        }
        KIND_F4 | KIND_F4SC => {
            if offset >= 0xFF4 && offset <= 0xFFB {
                select_bank(cart, offset - 0xFF4);
            }
        }
        KIND_FA => {
            if offset >= 0xFF8 && offset <= 0xFFA {
                select_bank(cart, offset - 0xFF8);
            }
        }
        KIND_E0 => {
            if offset >= 0xFE0 && offset <= 0xFF7 {
                let at: usize = ((offset - 0xFE0) >> 3) as usize;
                cart.segment[at] = (offset & 7) as u16;
                cart.segment[at + 4] = (offset & 7) as u16;
            }
        }
        KIND_E7 => {
            if offset >= 0xFE0 && offset <= 0xFE6 {
                cart.ram_bank = 0;
                select_half(cart, 0, 2 * (offset & 7));
            }
            if offset == 0xFE7 {
                cart.ram_bank = 1;
            }
            if offset >= 0xFE8 && offset <= 0xFEB {
                cart.ram_page = (offset & 3) as u8;
            }
        }
        KIND_MB => {
            if offset == 0xFF0 {
                let next: u32 = (cart.segment[0] as u32 / BANK + 1) & 15;
                select_bank(cart, next);
            }
        }
        _ => {}
    }
}

/// Reads an address of the cartridge window.
pub fn read(m: &mut Machine, board: &Board, rom: &[u8], address: u32, now: u32) -> u32 {
    let offset: u32 = address & 0xFFF;
    if is_plain(&m.cart, offset) {
        return read_segment(&m.cart, rom, address);
    }
    if m.cart.kind == KIND_DPC {
        return dpc::read(&mut m.cart, rom, address, now);
    }
    read_special(&mut m.cart, board, rom, address)
}

/// Reads an address of cartridge RAM or of a hotspot.
fn read_special(cart: &mut Cart, board: &Board, rom: &[u8], address: u32) -> u32 {
    let offset: u32 = address & 0xFFF;
    match cart.kind {
        KIND_F8SC | KIND_F6SC | KIND_F4SC => {
            if offset >= 0x080 && offset < 0x100 {
                return cart.ram[(offset & 0x7F) as usize] as u32;
            }
        }
        KIND_FA => {
            if offset >= 0x100 && offset < 0x200 {
                return board.ram[(offset & 0xFF) as usize] as u32;
            }
        }
        KIND_CV => {
            if offset < 0x400 {
                return board.ram[offset as usize] as u32;
            }
            return read_segment(cart, rom, address);
        }
        KIND_3E => {
            if cart.ram_bank != 0 {
                return board.ram[(cart.ram_bank as usize - 1) * 1024 + (offset & 0x3FF) as usize] as u32;
            }
        }
        KIND_E7 => {
            return read_e7(cart, board, rom, address);
        }
        KIND_0840 => {
            return 0;
        }
        _ => {}
    }
    access_hotspot(cart, offset);
    read_segment(cart, rom, address)
}

fn read_e7(cart: &mut Cart, board: &Board, rom: &[u8], address: u32) -> u32 {
    let offset: u32 = address & 0xFFF;
    access_hotspot(cart, offset);
    if offset < 0x800 && cart.ram_bank != 0 {
        if offset >= 0x400 {
            return board.ram[(offset & 0x3FF) as usize] as u32;
        }
        return rom[(14 * SEGMENT_BYTES + offset) as usize] as u32;
    }
    if offset >= 0x900 && offset < 0xA00 {
        return board.ram[(E7_PAGES + cart.ram_page as u32 * 256 + (offset & 0xFF)) as usize] as u32;
    }
    read_segment(cart, rom, address)
}

/// Writes to an address of the cartridge window. Returns true if the TIA receives the write too.
pub fn write(m: &mut Machine, board: &mut Board, address: u32, value: u32, now: u32) -> bool {
    let offset: u32 = address & 0xFFF;
    let cart: &mut Cart = &mut m.cart;
    match cart.kind {
        KIND_2K | KIND_4K | KIND_FE | KIND_UA | KIND_0840 => {}
        KIND_DPC => {
            dpc::write(cart, offset, value, now);
        }
        KIND_F8SC | KIND_F6SC => {
            if offset < 0x080 {
                cart.ram[offset as usize] = value as u8;
            }
            access_hotspot(cart, offset);
        }
        KIND_F4SC => {
            if offset < 0x080 {
                cart.ram[offset as usize] = value as u8;
            }
        }
        KIND_FA => {
            if offset < 0x100 {
                board.ram[offset as usize] = value as u8;
            }
            access_hotspot(cart, offset);
        }
        KIND_E7 => {
            if offset < 0x400 && cart.ram_bank != 0 {
                board.ram[offset as usize] = value as u8;
            }
            if offset >= 0x800 && offset < 0x900 {
                board.ram[(E7_PAGES + cart.ram_page as u32 * 256 + (offset & 0xFF)) as usize] = value as u8;
            }
            access_hotspot(cart, offset);
        }
        KIND_CV => {
            if offset >= 0x400 && offset < 0x800 {
                board.ram[(offset & 0x3FF) as usize] = value as u8;
            }
        }
        KIND_3F => {
            if offset < 0x040 {
                select_3f(cart, value);
            }
            return true;
        }
        KIND_3E => {
            if offset >= 0x400 && offset < 0x800 && cart.ram_bank != 0 {
                board.ram[(cart.ram_bank as usize - 1) * 1024 + (offset & 0x3FF) as usize] = value as u8;
                return false;
            }
            select_3e(cart, offset, value);
            return true;
        }
        _ => {
            access_hotspot(cart, offset);
        }
    }
    false
}

/// 3F: selects bank `value` of 2 KiB, modulo the number of banks.
fn select_3f(cart: &mut Cart, value: u32) {
    let banks: u32 = cart.rom_bytes / 2048;
    select_half(cart, 0, 2 * (value % banks));
}

/// 3E: a write to $3E selects a RAM bank, one to $3F a ROM bank.
fn select_3e(cart: &mut Cart, offset: u32, value: u32) {
    if offset == 0x3F {
        cart.ram_bank = 0;
        select_3f(cart, value);
    }
    if offset == 0x3E {
        cart.ram_bank = (value & 31) as u8 + 1;
    }
}

/// True if the cartridge responds to this address below $1000.
pub fn is_claimed(cart: &Cart, address: u32) -> bool {
    let at: u32 = address & 0x1FFF;
    if cart.kind == KIND_UA {
        return at >= 0x200 && at < 0x280;
    }
    at < 0x40
}

/// Reads an address below $1000 to which the cartridge responds.
pub fn read_claimed(m: &mut Machine, board: &mut Board, rom: &[u8], address: u32, now: u32) -> u32 {
    if m.cart.kind == KIND_UA {
        access_hotspot_ua(&mut m.cart, address);
        return super::tia::read(m, board, address, now);
    }
    if m.cart.kind == KIND_3E {
        return read_special(&mut m.cart, board, rom, address & 0x3F);
    }
    read_segment(&m.cart, rom, address & 0x3F)
}

/// Writes to an address below $1000 to which the cartridge responds. All of them are addresses of the TIA,
/// which receives the write too.
pub fn write_claimed(m: &mut Machine, address: u32, value: u32) {
    if m.cart.kind == KIND_UA {
        access_hotspot_ua(&mut m.cart, address);
    } else if m.cart.kind == KIND_3F {
        select_3f(&mut m.cart, value);
    } else {
        select_3e(&mut m.cart, address & 0x3F, value);
    }
}

fn access_hotspot_ua(cart: &mut Cart, address: u32) {
    let at: u32 = address & 0x1FFF;
    if at == 0x220 {
        select_bank(cart, 0);
    }
    if at == 0x240 {
        select_bank(cart, 1);
    }
}
