//! Runs: code for the instructions from one head to the next jump, and what surrounds it.

use std::collections::BTreeSet;

use super::assembler::{Alu, If, Label, Reg};
use super::instructions::Flow;
use super::operations::Operation;
use super::{A, CYCLES, Compiler, FLAGS, Held, Kind, RETURN, State, Stub, XY, length};
use crate::fast_cpu::{Handler, RESERVE, handlers};
use crate::machine::instructions::Access;

impl Compiler<'_> {
    /// Compiles the instructions from all heads on.
    pub(super) fn compile(&mut self, heads: &BTreeSet<usize>) {
        debug_assert_eq!(self.out.code.len(), RETURN as usize);
        self.out.ret();
        for &at in heads {
            let label = self.out.label();
            self.labels.insert(at, label);
        }
        for &at in heads {
            if self.out.position(self.labels[&at]).is_none() {
                self.run(at);
            }
        }
        let mut stores: Vec<(u32, Label)> = self.stores.drain().collect();
        stores.sort_unstable_by_key(|&(register, _)| register);
        for (register, label) in stores {
            self.out.bind(label);
            // The function ends with a jump to that of `back`, which returns here, and then to the caller.
            self.out.move_stack(-8);
            self.out.mov_address(Reg::Si, self.back);
            self.out.call_to(self.functions.stores[register as usize] as usize as u64);
            self.out.move_stack(8);
            self.out.ret();
        }
        self.out.link();
    }

    /// Compiles the instructions from a head on up to the next jump or code that exists.
    fn run(&mut self, start: usize) {
        let mut at = start;
        self.state = State::default();
        loop {
            if let Some(&label) = self.labels.get(&at) {
                self.settle(at);
                if self.out.position(label).is_some() {
                    self.out.jump(label);
                    break;
                }
                self.out.bind(label);
            }
            if self.kinds.get(at) != Some(&Kind::Compiled) {
                if at < self.image.len() {
                    self.settle_all();
                    self.tail(at, self.records[at].function);
                }
                break;
            }
            let place = self.out.label();
            self.out.bind(place);
            self.places.push((at, place, self.state));
            let opcode = self.image[at];
            match self.instruction(at).expect("it has been compiled before") {
                Flow::Next => at += length(opcode),
                Flow::End => break,
            }
        }
        for stub in std::mem::take(&mut self.stubs) {
            self.stub(stub);
        }
        for (at, place, state) in std::mem::take(&mut self.places) {
            self.entry(at, place, state);
        }
    }

    /// Code that enters the run at the instruction at `at`, from the chain. There is none if code from there on reads a
    /// result that is not in `FLAGS`.
    fn entry(&mut self, at: usize, place: Label, state: State) {
        if state.result != Held::Flags && self.reads_result(at) {
            return;
        }
        if state.pending == 0 {
            self.entries.extend(self.out.position(place).map(|position| (at, position)));
            return;
        }
        self.entries.push((at, self.out.code.len() as u32));
        self.out.alu_number_wide(Alu::Sub, CYCLES, state.pending);
        self.out.jump(place);
    }

    fn stub(&mut self, stub: Stub) {
        self.out.bind(stub.label);
        self.state = stub.state;
        self.settle_all();
        self.tail(stub.at, stub.function);
    }

    /// Jumps to a function of the chain, with the record at `at`.
    fn tail(&mut self, at: usize, function: Handler) {
        self.out.mov_address(Reg::Si, &raw const self.records[at] as u64);
        self.out.jump_to(function as usize as u64);
    }

    /// Adds what is pending to `CYCLES`.
    pub(super) fn count(&mut self) {
        if self.state.pending != 0 {
            self.out.alu_number_wide(Alu::Add, CYCLES, self.state.pending);
            self.state.pending = 0;
        }
    }

    /// Moves the result to `FLAGS`. Changes AX.
    pub(super) fn settle_result(&mut self) {
        let from = match self.state.result {
            Held::Flags => return,
            Held::A => A,
            Held::X => {
                self.out.low_byte(Reg::Ax, XY);
                Reg::Ax
            }
            Held::Y => {
                self.out.second_byte_of_dx(Reg::Ax);
                Reg::Ax
            }
        };
        self.out.alu_number(Alu::And, FLAGS, 0x100);
        self.out.alu(Alu::Or, FLAGS, from);
        self.state.result = Held::Flags;
    }

    pub(super) fn settle_all(&mut self) {
        self.settle_result();
        self.count();
    }

    /// Makes the state that code from `at` on expects: a result that nothing reads may be wrong.
    fn settle(&mut self, at: usize) {
        if self.reads_result(at) {
            self.settle_result();
        }
        self.state.result = Held::Flags;
        self.count();
    }

    /// True if the result before the instruction at `at` may be read. No instruction that gives a new one reads it, and no
    /// function of the chain that executes such an instruction does.
    fn reads_result(&self, mut at: usize) -> bool {
        for _ in 0..8 {
            let Some(&opcode) = self.image.get(at) else { return true };
            let Some(operation) = Operation::of(opcode) else { return true };
            if self.kinds[at] != Kind::Compiled
                || matches!(operation.access, Access::Branch | Access::Special)
                || !operation.assigns('n') && self.may_leave(at)
            {
                return true;
            }
            if operation.assigns('n') {
                return false;
            }
            at += length(opcode);
        }
        true
    }

    /// True if the instruction at `at`, which gives no result, can be left to a function of the chain.
    fn may_leave(&self, at: usize) -> bool {
        let class = usize::from(self.decoded[at].kind.1);
        !matches!(
            class,
            handlers::PLAIN | handlers::RAM | handlers::CONSTANT | handlers::ROM_INDEXED | handlers::TRIGGER
        )
    }

    /// A label of a stub that jumps to the function of the record at `at`, in the state before its instruction.
    pub(super) fn exit(&mut self, at: usize, state: State) -> Label {
        let label = self.out.label();
        let function = self.records[at].function;
        self.stubs.push(Stub { label, state, at, function });
        label
    }

    /// A taken jump to image offset `to`.
    pub(super) fn go(&mut self, to: usize) {
        if self.reads_result(to) {
            self.settle_result();
        }
        self.count();
        let label = self.out.label();
        self.stubs.push(Stub { label, state: self.state, at: to, function: self.functions.leave });
        if cfg!(debug_assertions) {
            self.out.jump(label);
            return;
        }
        self.out.low_word(Reg::Ax, CYCLES);
        self.out.alu_number(Alu::Cmp, Reg::Ax, u32::from(RESERVE));
        self.out.jump_if(If::Below, label);
        if let Some(&target) = self.labels.get(&to) {
            self.out.jump(target);
        } else {
            self.tail(to, self.records[to].function);
        }
    }
}
