//! Where lanes that an instruction separates meet again: the immediate postdominators of its blocks.
//!
//! Source: K. Cooper, T. Harvey and K. Kennedy, *A Simple, Fast Dominance Algorithm* (2001), on the reversed graph.

use super::decode::{Instruction, Op};

/// Lanes meet only at the end of the function.
pub const EXIT: u32 = u32::MAX;

/// The instructions that can follow one.
fn following(code: &[Instruction], tables: &[Vec<u32>], at: usize) -> Vec<u32> {
    let next = at as u32 + 1;
    match code[at].op {
        Op::Branch if code[at].guard.is_some() => vec![code[at].target, next],
        Op::Branch => vec![code[at].target],
        Op::BranchTable(_, table) => tables[table as usize].clone(),
        Op::Return if code[at].guard.is_some() => vec![EXIT, next],
        Op::Return => vec![EXIT],
        _ => vec![next],
    }
}

/// For each instruction its immediate postdominator, if it can be followed by several.
pub fn meets(code: &[Instruction], tables: &[Vec<u32>]) -> Vec<u32> {
    let count = code.len();
    // Node `count` is the end of the function.
    let place = |at: u32| if at as usize >= count { count } else { at as usize };
    let after: Vec<Vec<usize>> =
        (0..count).map(|at| following(code, tables, at).into_iter().map(place).collect()).collect();
    let mut before: Vec<Vec<usize>> = vec![vec![]; count + 1];
    for (at, all) in after.iter().enumerate() {
        for &next in all {
            before[next].push(at);
        }
    }
    // Reverse postorder of the reversed graph, from the end.
    let mut number = vec![usize::MAX; count + 1];
    let mut order = vec![];
    let mut seen = vec![false; count + 1];
    let mut stack = vec![(count, 0)];
    seen[count] = true;
    while let Some((node, child)) = stack.pop() {
        if let Some(&next) = before[node].get(child) {
            stack.push((node, child + 1));
            if !seen[next] {
                seen[next] = true;
                stack.push((next, 0));
            }
        } else {
            number[node] = order.len();
            order.push(node);
        }
    }
    let mut dominator = vec![usize::MAX; count + 1];
    dominator[count] = count;
    let mut changed = true;
    while changed {
        changed = false;
        for &node in order.iter().rev().filter(|&&node| node != count) {
            let mut found = usize::MAX;
            for &next in after[node].iter().filter(|&&next| dominator[next] != usize::MAX) {
                let (mut a, mut b) = (next, if found == usize::MAX { next } else { found });
                while a != b {
                    if number[a] < number[b] {
                        a = dominator[a];
                    } else {
                        b = dominator[b];
                    }
                }
                found = a;
            }
            changed |= dominator[node] != found;
            dominator[node] = found;
        }
    }
    // A node that never reaches the end has none.
    dominator.iter().take(count).map(|&node| if node >= count { EXIT } else { node as u32 }).collect()
}
