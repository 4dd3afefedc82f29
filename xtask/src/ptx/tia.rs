//! Stores to the TIA in the block.

use super::{CYCLES_AT, TURN, Writer, field, now};

/// Registers of the TIA.
const TIA_REGISTERS: u32 = 64;

/// Sets `t0` to a number that is not 0 if a store of `o` to a TIA register changes something, and returns true. Else the store
/// is executed, or only `machine::bus` executes it. The conditions are those of `machine::tia::write` while pictures are
/// not drawn access by access.
fn store(w: &mut Writer, register: u32) {
    let check = |w: &mut Writer, text: &str| w.puts(&format!("{text}; bra LCHECK"));
    // A flag of one bit, at bit `bit` of the value.
    let flag = |w: &mut Writer, at: u32, bit: u32| {
        w.puts(&format!("bfe.u32 t0,o,{bit},1; ld.shared.u8 t1,[m+{at}]; xor.b32 t0,t0,t1; bra LCHECK"));
    };
    match register {
        0x01 => check(w, &format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::VBLANK)),
        0x02 => wait_for_line(w),
        0x04 | 0x05 => {
            let player = register - 0x04;
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::NUSIZ + player));
            w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::SKIP + player));
            if player == 0 {
                w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::STAR_FIELD));
                w.puts(&format!("ld.shared.u8 t1,[m+{}]; or.b32 t0,t0,t1", field::MISSILE0_FORM));
            }
            w.put("bra LCHECK");
        }
        0x06..=0x09 => {
            // While nothing is drawn, a color is stored.
            let place = field::COLOR + register - 0x06;
            w.puts(&format!("ld.shared.u8 t1,[m+{place}]; xor.b32 t0,t1,o; and.b32 t0,t0,0xFE"));
            w.puts(&format!("ld.shared.u8 t2,[m+{}]; setp.eq.u32 p,t2,0; xor.b32 t1,t0,t1", field::DRAW));
            check(w, &format!("@p st.shared.u8 [m+{place}],t1; @p mov.u32 t0,0"));
        }
        0x0A => {
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::CTRLPF));
            w.puts(&format!("ld.shared.u8 t1,[m+{}]; xor.b32 t1,t1,o; and.b32 t1,t1,1", field::MIRROR));
            check(w, "or.b32 t0,t0,t1");
        }
        0x0B | 0x0C => flag(w, field::REFLECT + register - 0x0B, 3),
        0x0D..=0x0F => {
            w.put(format!("ld.shared.u32 t1,[m+{}]", field::PLAYFIELD));
            let (field, wanted) = [
                ("and.b32 t1,t1,0xF", "shr.u32 t0,o,4"),
                ("bfe.u32 t1,t1,4,8", "brev.b32 t0,o; shr.u32 t0,t0,24"),
                ("shr.u32 t1,t1,12", "mov.u32 t0,o"),
            ][register as usize - 0x0D];
            check(w, &format!("{field}; {wanted}; xor.b32 t0,t0,t1"));
        }
        0x1B | 0x1C => {
            let (player, other) = (register - 0x1B, 0x1C - register);
            w.puts(&format!("ld.shared.u8 t0,[m+{}]; xor.b32 t0,t0,o", field::GRP + player));
            differ(w, field::GRP + other, field::GRP_OLD + other);
            if player == 1 {
                differ(w, field::ENABL, field::ENABL_OLD);
            }
            w.put("bra LCHECK");
        }
        0x1D | 0x1E => flag(w, field::ENAM + register - 0x1D, 1),
        0x1F => flag(w, field::ENABL, 1),
        0x22 => {
            check(w, &format!("ld.shared.u8 t1,[m+{}]; shr.u32 t0,o,4; xor.b32 t0,t0,t1", field::MOTION + 2))
        }
        0x20..=0x24 => {
            w.puts(&format!(
                "shr.u32 t0,o,4; st.shared.u8 [m+{}],t0; bra LTOP",
                field::MOTION + register - 0x20
            ));
        }
        0x25 | 0x26 => flag(w, field::VDELP + register - 0x25, 0),
        0x27 => flag(w, field::VDELBL, 0),
        0x28 | 0x29 => flag(w, field::RESMP + register - 0x28, 1),
        0x2B => {
            w.put("mov.u32 t0,0");
            (0..5).for_each(|object| w.put(format!("st.shared.u8 [m+{}],t0", field::MOTION + object)));
            w.put("bra LTOP");
        }
        0x00 | 0x10..=0x14 | 0x2A | 0x2C => w.put("bra LSTORE"),
        // Sound, which a device does not make, and addresses without a register.
        _ => w.put("bra LTOP"),
    }
}

/// Adds the difference of two bytes of the machine to `t0`.
fn differ(w: &mut Writer, one: u32, other: u32) {
    w.puts(&format!(
        "ld.shared.u8 t1,[m+{one}]; ld.shared.u8 t2,[m+{other}]; xor.b32 t1,t1,t2; or.b32 t0,t0,t1"
    ));
}

/// WSYNC: the cycles to the end of the line, which has 228 clocks. The product by 2^32 / 228, rounded up, is exact below 2^24, and
/// that by a third of 2^32 below 2^16.
fn wait_for_line(w: &mut Writer) {
    w.puts(&format!(
        "ld.shared.u32 t1,[m+{}]; {}; mul.lo.u32 t0,t0,3; sub.u32 t0,t0,t1",
        field::ORIGIN,
        now("t0")
    ));
    w.puts(&format!(
        "mul.hi.u32 t1,t0,{}; mad.lo.u32 t0,t1,{},t0",
        (1u64 << 32).div_ceil(228),
        -228i32 as u32
    ));
    w.puts(&format!("mul.hi.u32 t0,t0,{}; setp.ne.u32 p,t0,0", (1u64 << 32).div_ceil(3)));
    w.puts(&format!("mad.lo.u32 t0,t0,{},acc", (1u32 << CYCLES_AT).wrapping_neg()));
    w.puts(&format!("@p add.u32 acc,t0,{}; {TURN}", 76 << CYCLES_AT));
}

/// Labels of the stores to the registers of the TIA: registers alike share one.
pub(super) fn stores(w: &mut Writer) {
    let mut texts: Vec<Vec<String>> = vec![];
    let mut labels = vec![];
    for register in 0..TIA_REGISTERS {
        let mut one = Writer { lines: vec![], temporaries: 0 };
        store(&mut one, register);
        let known = texts.iter().position(|text| *text == one.lines);
        labels.push(format!("T{}", known.unwrap_or(texts.len())));
        if known.is_none() {
            texts.push(one.lines);
        }
    }
    w.put("LTIA:");
    w.puts("mov.u32 last,acc; setp.ge.u32 p,acc,until; @p bra LSTORE; and.b32 t0,q,0x3F");
    w.put(format!("TIATBL: .branchtargets {}", labels.join(",")));
    w.put("brx.idx t0,TIATBL");
    for (number, text) in texts.into_iter().enumerate() {
        w.put(format!("T{number}:"));
        w.lines.extend(text);
    }
}
