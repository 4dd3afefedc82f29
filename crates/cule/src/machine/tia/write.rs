//! TIA writes: the effect of each register, after the beam has been advanced to the time of the write where
//! necessary.
//!
//! Device subset.

use super::{
    ALL_NEED_BEAM, ALL_OBJECTS, BL, CLOCKS_PER_LINE, CYCLES_PER_LINE, FORM_NORMAL, HBLANK_CLOCKS, M0, NEVER,
    P0, PF, Tia, beam, bit, clock_of, collision, hmove, line_clock, objects, paint, position,
};
use crate::machine::{Board, Machine};

/// Delay of playfield writes in clocks, by cycle mod 4.
pub const PLAYFIELD_DELAY: [i32; 4] = [4, 5, 2, 3];
/// Clock of a line before which CTRLPF changes the reflection of the same line.
pub const MIRROR_CLOCKS: i32 = 147;

/// Records that objects changed their graphics but cover the same cells.
pub fn mark_dirty(t: &mut Tia, objects: u8) {
    t.dirty |= objects;
    t.collisions_final = 0;
}

/// Records that an object moved or changed its size.
pub fn mark_moved(m: &mut Machine, board: &mut Board, object: usize) {
    let cells: u64 = objects::cells(&m.tia, object);
    mark_moved_to(m, board, object, cells);
}

/// As `mark_moved`. `cells` are those of the object.
pub fn mark_moved_to(m: &mut Machine, board: &mut Board, object: usize, cells: u64) {
    board.line.cells[object] = cells;
    m.tia.dirty |= bit(object);
    m.tia.collisions_final = 0;
    collision::update_may_collide(&mut m.tia, board, object);
}

/// Marks `may_collide` as out of date.
pub fn invalidate_may_collide(t: &mut Tia) {
    t.may_collide_outdated = 1;
    t.needs_beam = ALL_NEED_BEAM;
}

/// Records that an object became enabled or disabled.
pub fn enable(t: &mut Tia, board: &mut Board, object: usize, on: bool) {
    if on {
        t.enabled |= bit(object);
        collision::update_may_collide(t, board, object);
    } else {
        t.enabled &= ALL_OBJECTS & !bit(object);
        t.may_collide_overestimated |= t.may_collide >> object & 1;
    }
}

/// Advances the beam for a change at clock `target` that is visible in `cells` only: to the begin of the row if it covers none of
/// them there before `target`.
fn catch_up_over(m: &mut Machine, board: &mut Board, target: i32, cells: u64) {
    let t: &Tia = &m.tia;
    let mut to: i32 = target;
    if m.access_by_access == 0 && target >= t.gate && target < t.window_end {
        let goal: i32 = target - t.base;
        let row: i32 = goal - (goal as u32 % CLOCKS_PER_LINE as u32) as i32;
        let begin: i32 = row + HBLANK_CLOCKS;
        if goal > begin && t.beam < goal && beam::is_steady(t) {
            let from: i32 = if t.beam > begin { t.beam - begin } else { 0 };
            let ahead: u64 = (1u64 << ((goal - begin + 3) >> 2)) - 1;
            let behind: u64 = (1u64 << (from >> 2)) - 1;
            if cells & ahead & !behind == 0 {
                to = t.base + row;
            }
        }
    }
    beam::catch_up(m, board, to);
}

/// Advances the beam to `target` if a change of `object` could be visible there. `visible`: the write changes it.
pub fn catch_up_for(m: &mut Machine, board: &mut Board, target: i32, object: usize, visible: bool) {
    if m.access_by_access != 0 {
        beam::catch_up(m, board, target);
        return;
    }
    if visible && (m.draw != 0 || can_collide(m, board, bit(object))) {
        let cells: u64 = board.line.cells[object];
        catch_up_over(m, board, target, cells);
    }
}

/// True if one of `objects` is near an object that it could collide with.
fn can_collide(m: &mut Machine, board: &mut Board, objects: u8) -> bool {
    if m.tia.may_collide_outdated != 0 {
        collision::refresh_may_collide(m, board);
    }
    m.tia.may_collide & objects != 0
}

/// Advances the beam to `target` if a move of `object` to `cells` could be visible there.
pub fn catch_up_for_move(m: &mut Machine, board: &mut Board, target: i32, object: usize, cells: u64) {
    let mut seen: bool = m.access_by_access != 0;
    if !seen && m.tia.enabled & bit(object) != 0 {
        seen = m.draw != 0
            || can_collide(m, board, bit(object))
            || collision::would_collide(m, board, object, cells);
    }
    if seen {
        let both: u64 = cells | board.line.cells[object];
        catch_up_over(m, board, target, both);
    }
}

/// Advances the beam to `target` for any visible change.
fn catch_up_if(m: &mut Machine, board: &mut Board, target: i32, visible: bool) {
    if visible || m.access_by_access != 0 {
        beam::catch_up(m, board, target);
    }
}

/// Writes register `address` mod 64 at the end of cycle `cycles`. Returns the cycles for which WSYNC stalls
/// the processor.
///
/// `after_write`: the previous bus access was a write; WSYNC does not stall then.
#[inline(always)]
pub fn write(
    m: &mut Machine,
    board: &mut Board,
    cycles: u32,
    address: u32,
    value: u32,
    after_write: bool,
) -> u32 {
    let register: u32 = address & 0x3F;
    let clock: i32 = clock_of(cycles);
    if clock >= m.tia.limit {
        m.tia.stop = 1;
        beam::catch_up(m, board, clock);
    }
    if after_write {
        // Two pushes at the same time: the first, to the next register, may take effect later than this one.
        let ahead: i32 = clock.wrapping_add(delay(m, (register + 1) & 0x3F, clock));
        beam::catch_up(m, board, ahead);
    }
    // The most frequent registers come first: a GPU compares for each.
    if register >= 0x1B && register <= 0x1C {
        write_graphics(m, board, clock, (register - 0x1B) as usize, value);
        return 0;
    }
    if register >= 0x0D && register <= 0x0F {
        write_playfield(m, board, clock, register - 0x0D, value);
        return 0;
    }
    if register >= 0x06 && register <= 0x09 {
        write_color(m, board, clock, (register - 0x06) as usize, value);
        return 0;
    }
    match register {
        0x00 => {
            write_vsync(m, board, clock, value);
        }
        0x01 => {
            write_vblank(m, board, clock, value);
        }
        0x02 => {
            catch_up_if(m, board, clock, false);
            let phase: u32 = (line_clock(&m.tia, clock) / 3) as u32;
            if !after_write && phase != 0 {
                return CYCLES_PER_LINE - phase;
            }
        }
        0x04 | 0x05 => {
            write_nusiz(m, board, clock, (register - 0x04) as usize, value);
        }
        0x0A => {
            write_ctrlpf(m, board, clock, value);
        }
        0x0B | 0x0C => {
            write_reflect(m, board, clock, (register - 0x0B) as usize, value);
        }
        0x10 | 0x11 => {
            position::strobe_player(m, board, clock, (register - 0x10) as usize);
        }
        0x12 | 0x13 => {
            position::strobe_missile(m, board, clock, (register - 0x12) as usize);
        }
        0x14 => {
            position::strobe_ball(m, board, clock);
        }
        0x15 | 0x16 | 0x17 | 0x18 | 0x19 | 0x1A => {
            catch_up_if(m, board, clock, false);
            board.sound[(register - 0x15) as usize] = value as u8;
        }
        0x1D | 0x1E => {
            write_enam(m, board, clock, (register - 0x1D) as usize, value);
        }
        0x1F => {
            write_enabl(m, board, clock, value);
        }
        0x20 | 0x21 | 0x22 | 0x23 | 0x24 => {
            hmove::write_motion(m, board, clock, (register - 0x20) as usize, value);
        }
        0x25 | 0x26 => {
            write_vdelp(m, board, clock, (register - 0x25) as usize, value);
        }
        0x27 => {
            write_vdelbl(m, board, clock, value);
        }
        0x28 | 0x29 => {
            position::write_resmp(m, board, clock, (register - 0x28) as usize, value);
        }
        0x2A => {
            hmove::strobe(m, board, clock);
        }
        0x2B => {
            catch_up_if(m, board, clock, false);
            m.tia.motion = [0, 0, 0, 0, 0];
        }
        0x2C => {
            beam::catch_up(m, board, clock);
            m.tia.collisions = 0;
            m.tia.collisions_final = 0;
            invalidate_may_collide(&mut m.tia);
        }
        _ => {
            catch_up_if(m, board, clock, false);
        }
    }
    0
}

fn write_vsync(m: &mut Machine, board: &mut Board, clock: i32, value: u32) {
    catch_up_if(m, board, clock, false);
    if value & 2 != 0 {
        m.tia.arm = clock.wrapping_add(CLOCKS_PER_LINE);
        if m.draw != 0 && m.access_by_access == 0 {
            beam::catch_up(m, board, clock);
            m.access_by_access = 1;
        }
    } else if clock >= m.tia.arm {
        m.tia.arm = NEVER;
        m.tia.stop = 1;
        beam::catch_up(m, board, clock);
    }
}

fn write_vblank(m: &mut Machine, board: &mut Board, clock: i32, value: u32) {
    let new: u8 = value as u8;
    let toggles: bool = (m.tia.vblank ^ new) & 2 != 0;
    catch_up_if(m, board, clock.wrapping_add(1), toggles);
    if toggles {
        m.tia.collisions_final = 0;
        invalidate_may_collide(&mut m.tia);
    }
    if m.tia.vblank & 0x80 == 0 && new & 0x80 != 0 {
        m.tia.dump = 1;
    } else if m.tia.vblank & 0x80 != 0 && new & 0x80 == 0 {
        m.tia.dump = 0;
        m.tia.dump_release = clock / 3;
    }
    m.tia.vblank = new;
}

fn write_nusiz(m: &mut Machine, board: &mut Board, clock: i32, player: usize, value: u32) {
    let new: u8 = value as u8;
    let target: i32 = clock.wrapping_add(8);
    let mut special: bool = m.tia.skip[player] != 0;
    if player == 0 && (m.tia.star_field != 0 || m.tia.missile0_form != FORM_NORMAL) {
        special = true;
    }
    let sized: bool = (m.tia.nusiz[player] ^ new) & 0x37 != 0;
    if !special && !sized {
        catch_up_if(m, board, target, false);
        m.tia.nusiz[player] = new;
        return;
    }
    let both: u8 = bit(P0 + player) | bit(M0 + player);
    let player_cells: u64 = objects::player_cells(m.tia.position[P0 + player], new);
    // Two objects that change together may collide with each other, though neither collides with the other's
    // old form.
    if special || m.tia.enabled & both == both {
        catch_up_if(m, board, target, true);
    } else {
        let missile_cells: u64 = objects::missile_cells(m.tia.position[M0 + player], new);
        catch_up_for_move(m, board, target, P0 + player, player_cells);
        catch_up_for_move(m, board, target, M0 + player, missile_cells);
    }
    m.tia.nusiz[player] = new;
    m.tia.skip[player] = 0;
    if player == 0 {
        m.tia.missile0_form = FORM_NORMAL;
    }
    mark_moved_to(m, board, P0 + player, player_cells);
    mark_moved(m, board, M0 + player);
}

fn write_color(m: &mut Machine, board: &mut Board, clock: i32, index: usize, value: u32) {
    let mut color: u8 = value as u8 & 0xFE;
    if m.tia.layout.pal != 0 {
        color |= (m.tia.last_lines & 1) as u8;
    }
    if color != m.tia.color[index] && m.draw != 0 && m.access_by_access == 0 {
        let cells: u64 = cells_with_color(&m.tia, board, index);
        if cells != 0 {
            catch_up_over(m, board, clock, cells);
        }
    } else {
        catch_up_if(m, board, clock, false);
    }
    m.tia.color[index] = color;
}

/// Cells that may show color `index`.
fn cells_with_color(t: &Tia, board: &Board, index: usize) -> u64 {
    if index == paint::BACKGROUND || (index < paint::PLAYFIELD && t.ctrlpf & paint::SCORE != 0) {
        return objects::ALL_CELLS;
    }
    // The playfield and the ball, or a player and its missile.
    let (large, small): (usize, usize) =
        if index == paint::PLAYFIELD { (PF, BL) } else { (P0 + index, M0 + index) };
    let mut cells: u64 = 0;
    if t.enabled & bit(large) != 0 {
        cells |= board.line.cells[large];
    }
    if t.enabled & bit(small) != 0 {
        cells |= board.line.cells[small];
    }
    cells
}

fn write_ctrlpf(m: &mut Machine, board: &mut Board, clock: i32, value: u32) {
    let new: u8 = value as u8;
    let mirror: u8 = new & 1;
    let changes: u8 = m.tia.ctrlpf ^ new;
    let now: bool = line_clock(&m.tia, clock) < MIRROR_CLOCKS;
    // A late change of bit 0 becomes visible when the next row is entered: the beam must have entered all
    // earlier rows.
    let turned: bool = mirror != m.tia.mirror || changes & 1 != 0;
    let sized: bool = changes & 0x30 != 0;
    catch_up_if(m, board, clock, turned || (m.draw != 0 && changes != 0));
    if sized && m.draw == 0 && m.access_by_access == 0 {
        let cells: u64 = objects::ball_cells(m.tia.position[BL], new);
        catch_up_for_move(m, board, clock, BL, cells);
    }
    m.tia.ctrlpf = new;
    if sized {
        mark_moved(m, board, BL);
    }
    if turned {
        if now {
            m.tia.mirror = mirror;
        }
        mark_moved(m, board, PF);
        invalidate_may_collide(&mut m.tia);
    }
}

fn write_reflect(m: &mut Machine, board: &mut Board, clock: i32, player: usize, value: u32) {
    let on: u8 = (value >> 3 & 1) as u8;
    let changes: bool = on != m.tia.reflect[player];
    catch_up_for(m, board, clock.wrapping_add(1), P0 + player, changes);
    if changes {
        m.tia.reflect[player] = on;
        mark_dirty(&mut m.tia, bit(P0 + player));
    }
}

/// Playfield bits after a write to PF0, PF1 or PF2.
pub fn next_playfield(old: u32, part: u32, value: u32) -> u32 {
    match part {
        0 => old & !0xF | value >> 4,
        1 => old & !0xFF0 | (value as u8).reverse_bits() as u32 * 16,
        _ => old & !0xFF000 | value << 12,
    }
}

fn write_playfield(m: &mut Machine, board: &mut Board, clock: i32, part: u32, value: u32) {
    let old: u32 = m.tia.playfield;
    let new: u32 = next_playfield(old, part, value);
    if new == old && m.access_by_access == 0 {
        return;
    }
    let changes: u64 = objects::playfield_cells(old ^ new, m.tia.mirror);
    let mut seen: bool = m.draw != 0 || m.access_by_access != 0;
    if !seen {
        if m.tia.may_collide_outdated != 0 {
            collision::refresh_may_collide(m, board);
        }
        seen = changes & board.line.playfield_partners != 0;
    }
    if seen {
        let target: i32 = clock.wrapping_add(playfield_delay(m, clock));
        catch_up_over(m, board, target, changes);
    }
    m.tia.playfield = new;
    mark_dirty(&mut m.tia, bit(PF));
    // A row entered by `catch_up` may have reversed the right half.
    board.line.cells[PF] = objects::playfield_cells(new, m.tia.mirror);
    m.tia.enabled &= ALL_OBJECTS & !bit(PF);
    if new != 0 {
        m.tia.enabled |= bit(PF);
    }
    if changes & board.line.any_cells != 0 {
        collision::update_may_collide(&mut m.tia, board, PF);
    }
}

fn playfield_delay(m: &Machine, clock: i32) -> i32 {
    let cycle: i32 = line_clock(&m.tia, clock) / 3;
    PLAYFIELD_DELAY[(cycle & 3) as usize]
}

/// Clocks until a write takes effect, except RESPx while a copy is drawn.
fn delay(m: &Machine, register: u32, clock: i32) -> i32 {
    match register {
        0x01 | 0x0B | 0x0C | 0x1B | 0x1C => 1,
        0x04 | 0x05 | 0x12 | 0x13 => 8,
        0x0D | 0x0E | 0x0F => playfield_delay(m, clock),
        _ => 0,
    }
}

/// Updates the graphics that a player shows.
fn show_player(t: &mut Tia, board: &mut Board, player: usize) {
    let seen: u8 = if t.vdelp[player] != 0 { t.grp_old[player] } else { t.grp[player] };
    if seen != t.graphics[player] {
        t.graphics[player] = seen;
        mark_dirty(t, bit(P0 + player));
        if (seen != 0) != (t.enabled & bit(P0 + player) != 0) {
            enable(t, board, P0 + player, seen != 0);
        }
    }
}

/// Updates whether the ball is enabled.
fn show_ball(t: &mut Tia, board: &mut Board) {
    let on: bool = (if t.vdelbl != 0 { t.enabl_old } else { t.enabl }) != 0;
    if on != (t.enabled & bit(BL) != 0) {
        mark_dirty(t, bit(BL));
        enable(t, board, BL, on);
    }
}

/// Updates whether a missile is enabled.
pub fn show_missile(t: &mut Tia, board: &mut Board, missile: usize) {
    let on: bool = t.enam[missile] != 0 && t.resmp[missile] == 0;
    if on != (t.enabled & bit(M0 + missile) != 0) {
        mark_dirty(t, bit(M0 + missile));
        enable(t, board, M0 + missile, on);
    }
}

fn write_graphics(m: &mut Machine, board: &mut Board, clock: i32, player: usize, value: u32) {
    let other: usize = 1 - player;
    let new: u8 = value as u8;
    let mut changes: u8 = 0;
    if m.tia.vdelp[player] == 0 && m.tia.grp[player] != new {
        changes |= bit(P0 + player);
    }
    if m.tia.vdelp[other] != 0 && m.tia.grp_old[other] != m.tia.grp[other] {
        changes |= bit(P0 + other);
    }
    if player == 1 && m.tia.vdelbl != 0 && m.tia.enabl_old != m.tia.enabl {
        changes |= bit(BL);
    }
    if changes & changes.wrapping_sub(1) != 0 {
        // Two objects that change together may collide with each other, though neither collides with the
        // other's old form.
        let ball: u64 = if changes & bit(BL) != 0 { board.line.cells[BL] } else { 0 };
        let both: u64 = board.line.cells[P0] | board.line.cells[P0 + 1] | ball;
        catch_up_over(m, board, clock.wrapping_add(1), both);
    } else if changes != 0 || m.access_by_access != 0 {
        let object: usize = changes.trailing_zeros() as usize;
        catch_up_for(m, board, clock.wrapping_add(1), object, true);
    }
    m.tia.grp[player] = new;
    m.tia.grp_old[other] = m.tia.grp[other];
    if player == 1 {
        m.tia.enabl_old = m.tia.enabl;
    }
    for shown in 0..2 {
        if changes & bit(P0 + shown) != 0 {
            show_player(&mut m.tia, board, shown);
        }
    }
    if changes & bit(BL) != 0 {
        show_ball(&mut m.tia, board);
    }
}

fn write_enam(m: &mut Machine, board: &mut Board, clock: i32, missile: usize, value: u32) {
    let on: u8 = (value >> 1 & 1) as u8;
    let changes: bool = on != m.tia.enam[missile];
    catch_up_for(m, board, clock, M0 + missile, changes);
    m.tia.enam[missile] = on;
    show_missile(&mut m.tia, board, missile);
}

fn write_enabl(m: &mut Machine, board: &mut Board, clock: i32, value: u32) {
    let on: u8 = (value >> 1 & 1) as u8;
    let changes: bool = m.tia.vdelbl == 0 && m.tia.enabl != on;
    catch_up_for(m, board, clock, BL, changes);
    m.tia.enabl = on;
    show_ball(&mut m.tia, board);
}

fn write_vdelp(m: &mut Machine, board: &mut Board, clock: i32, player: usize, value: u32) {
    let on: u8 = (value & 1) as u8;
    let seen: u8 = if on != 0 { m.tia.grp_old[player] } else { m.tia.grp[player] };
    let changes: bool = seen != m.tia.graphics[player];
    catch_up_for(m, board, clock, P0 + player, changes);
    m.tia.vdelp[player] = on;
    show_player(&mut m.tia, board, player);
}

fn write_vdelbl(m: &mut Machine, board: &mut Board, clock: i32, value: u32) {
    let on: u8 = (value & 1) as u8;
    let seen: u8 = if on != 0 { m.tia.enabl_old } else { m.tia.enabl };
    let changes: bool = (seen != 0) != (m.tia.enabled & bit(BL) != 0);
    catch_up_for(m, board, clock, BL, changes);
    m.tia.vdelbl = on;
    show_ball(&mut m.tia, board);
}
