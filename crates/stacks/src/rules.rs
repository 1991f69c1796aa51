//! How to get from a function to its caller: the rule that holds at one instruction.
//!
//! Compilers leave tables for exceptions that say, for every instruction, where the caller's registers
//! are (`.eh_frame`, the call frame information of DWARF). Nearly all of it comes down to a few forms
//! that fit into eight bytes and are worth remembering; what does not is left to the system's unwinder.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection as _, UnwindTableRow, X86_64,
};

use super::loader::{Bytes, Module};

/// Where a caller's registers are. The *frame* is the stack pointer right before the call, so the return
/// address is always 8 below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Where the frame is, in bytes from what [`kind`](Self::kind) says.
    pub(super) frame: i32,
    /// Where the caller's base pointer is, in words from what [`kind`](Self::kind) says.
    pub(super) base: i16,
    pub(super) kind: Kind,
}

/// Sorts of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The frame is at an offset from the stack pointer; the caller's base pointer is at an offset from
    /// the frame, or unchanged at offset 0.
    FromStack,
    /// The same, with the frame at an offset from the base pointer.
    FromBase,
    /// An address at an offset from the base pointer says where the frame is, and the caller's base
    /// pointer is at an offset from it too: functions that align their stack.
    ThroughBase,
    /// A signal interrupted the caller; the kernel left its registers on the stack.
    Signal,
    /// There is no caller.
    Outermost,
    /// Nothing of the above.
    Other,
}

impl Rule {
    pub(super) const OTHER: Self = Self::new(Kind::Other);
    pub(super) const OUTERMOST: Self = Self::new(Kind::Outermost);

    const fn new(kind: Kind) -> Self {
        Self { frame: 0, base: 0, kind }
    }
}

/// Room for reading one table: compilers for this processor describe 17 registers, and nest states
/// rarely.
pub(super) struct Room;

impl UnwindContextStorage<usize> for Room {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 6];
}

pub(super) type Context = UnwindContext<usize, Room>;
type Tables<'a> = EhFrame<gimli::EndianSlice<'a, NativeEndian>>;

/// Finds the rule that holds at `address` of a module; none where the module has no table for it.
pub(super) fn rule_at(address: u64, module: &Module, context: &mut Context) -> Option<Rule> {
    let index = module.unwind_index()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(index.at);
    let header = EhFrameHdr::new(index.bytes, NativeEndian).parse(&bases, size_of::<usize>() as u8).ok()?;
    let Pointer::Direct(at) = header.eh_frame_ptr() else { return None };
    let Bytes { bytes, .. } = module.from(at)?;
    let bases = bases.set_eh_frame(at);
    let tables = EhFrame::new(bytes, NativeEndian);
    let entry = header.table()?.fde_for_address(&tables, &bases, address, Tables::cie_from_offset).ok()?;
    let row = entry.unwind_info_for_address(&tables, &bases, context, address).ok()?;
    if entry.is_signal_trampoline() { signal_rule(row, &tables) } else { ordinary_rule(row, &tables) }
}

fn ordinary_rule(row: &UnwindTableRow<usize, Room>, tables: &Tables<'_>) -> Option<Rule> {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return Some(Rule::OUTERMOST),
        _ => return None,
    }
    let base = row.register(X86_64::RBP);
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let kind = match *register {
                X86_64::RSP => Kind::FromStack,
                X86_64::RBP => Kind::FromBase,
                _ => return None,
            };
            let base = match base {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => 0,
                Some(RegisterRule::Offset(offset)) if offset != 0 => words(offset)?,
                _ => return None,
            };
            Some(Rule { frame: i32::try_from(*offset).ok()?, base, kind })
        }
        CfaRule::Expression(expression) => {
            let Some(RegisterRule::Expression(base)) = base else { return None };
            let (frame, rest) = offset_from(BASE_OPERATION, bytes_of(expression, tables)?)?;
            let (base, nothing) = offset_from(BASE_OPERATION, bytes_of(&base, tables)?)?;
            let plain = rest == [DEREFERENCE] && nothing.is_empty();
            plain.then_some(Rule {
                frame: i32::try_from(frame).ok()?,
                base: words(base)?,
                kind: Kind::ThroughBase,
            })
        }
    }
}

/// Where the kernel saves the stack pointer, above the stack pointer of the function that a signal
/// handler returns to. See `struct ucontext` of the kernel.
pub(super) const SAVED_STACK: u64 = 160;
/// The same for the base pointer.
pub(super) const SAVED_BASE: u64 = 120;
/// The same for the instruction pointer.
pub(super) const SAVED_INSTRUCTION: u64 = 168;

fn signal_rule(row: &UnwindTableRow<usize, Room>, tables: &Tables<'_>) -> Option<Rule> {
    let CfaRule::Expression(expression) = row.cfa() else { return None };
    let (offset, rest) = offset_from(STACK_OPERATION, bytes_of(expression, tables)?)?;
    (offset == SAVED_STACK as i64 && rest == [DEREFERENCE]).then_some(Rule::new(Kind::Signal))
}

/// `DW_OP_breg6`: the base pointer and an offset.
const BASE_OPERATION: u8 = 0x76;
/// `DW_OP_breg7`: the stack pointer and an offset.
const STACK_OPERATION: u8 = 0x77;
/// `DW_OP_deref`.
const DEREFERENCE: u8 = 0x06;

fn bytes_of<'a>(expression: &UnwindExpression<usize>, tables: &Tables<'a>) -> Option<&'a [u8]> {
    Some(expression.get(tables).ok()?.0.slice())
}

/// Reads the offset of `operation` at the start of an expression; returns it and the rest.
fn offset_from(operation: u8, expression: &[u8]) -> Option<(i64, &[u8])> {
    let (first, mut rest) = expression.split_first()?;
    if *first != operation {
        return None;
    }
    let (mut value, mut shift) = (0_i64, 0);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value |= i64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            // The number's sign is the uppermost bit of its last byte.
            let unused = 64 - shift;
            return Some((value << unused >> unused, rest));
        }
        if shift > 56 {
            return None;
        }
    }
}

fn words(bytes: i64) -> Option<i16> {
    (bytes % 8 == 0).then(|| i16::try_from(bytes / 8).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_expressions_are_signed() {
        assert_eq!(offset_from(0x77, &[0x77, 0xa0, 0x01, 0x06]), Some((160, &[6][..])));
        assert_eq!(offset_from(0x76, &[0x76, 0x78]), Some((-8, &[][..])));
        assert_eq!(offset_from(0x76, &[0x76, 0x80, 0x7f]), Some((-128, &[][..])));
        assert_eq!(offset_from(0x76, &[0x77, 0x78]), None);
        assert_eq!(offset_from(0x76, &[0x76, 0x80]), None);
        assert_eq!(offset_from(0x76, &[&[0x76][..], &[0xff; 12]].concat()), None);
        assert_eq!((words(-16), words(-12), words(1 << 40)), (Some(-2), None, None));
    }
}
