//! Variables of modules (`__device__`, `__constant__`): memory that is there as long as their module.
//!
//! CUPTI tells when a module is loaded, with its code as the device gets it, which is a file in the ELF format. Its symbols
//! have names and sizes of variables, but not where they are, so a number takes the place of the address in their events.

use std::ffi::CStr;

use floodmark_event::event::Action;
use floodmark_event::{Kind, StackId};
use floodmark_tail::{AllocDomain, BlockEvent, intern};

use super::driver;
use super::events::record;
use crate::capture::Entered;
use crate::cold::run_cold;
use crate::pid_lock::{Got, PidLock};

/// Most bytes of a module's file, and most variables of a module, that are believed.
const MOST_BYTES: usize = 1 << 32;
const MOST_VARIABLES: usize = 1 << 16;
/// Sections with variables: their names begin so. Other constants are parameters and what the compiler makes.
const SECTIONS: [&[u8]; 2] = [b".nv.global", b".nv.constant3"];

/// Symbols of data, and tables of symbols.
const OBJECT: u8 = 1;
const SYMBOLS: u32 = 2;

/// A variable that is there.
struct Variable {
    context: u64,
    module: u32,
    address: u64,
    bytes: u64,
    domain: AllocDomain,
}

/// All variables of the process, in no order.
#[derive(Default)]
struct Table {
    process: u32,
    variables: Vec<Variable>,
}

static TABLE: PidLock<Option<Table>> = PidLock::new(None);

fn with_table<R>(work: impl FnOnce(&mut Table) -> R) -> R {
    let process = super::process();
    TABLE.locked_as(process, |table, got| {
        if got == Got::TakenOver || table.as_ref().is_none_or(|table| table.process != process) {
            // What the parent left may be in the middle of a change: it is not looked at, and not given back.
            std::mem::forget(table.replace(Table { process, ..Table::default() }));
        }
        work(table.get_or_insert_default())
    })
}

/// A module was loaded into a context; `file` is its code.
pub(super) fn loaded(context: u64, module: u32, file: &[u8]) {
    let device = driver::device_of(context);
    record(|entered| {
        run_cold(&mut || {
            for (number, (name, bytes)) in variables(file).into_iter().enumerate() {
                let domain =
                    AllocDomain { device, kind: Kind::Static, name: intern(&name), ..AllocDomain::default() };
                let address = address_of(context, module, number as u64);
                event(entered, &domain, Action::Alloc, address, bytes);
                with_table(|table| {
                    table.variables.push(Variable { context, module, address, bytes, domain });
                });
            }
        });
    });
}

/// What takes the place of the address: another number for each variable that is there.
const fn address_of(context: u64, module: u32, number: u64) -> u64 {
    let of_context = context.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48 << 48;
    of_context | (module as u64) << 16 | number
}

fn event(entered: &Entered, domain: &AllocDomain, action: Action, address: u64, bytes: u64) {
    let is_named = action == Action::Alloc;
    entered.event_in(domain, BlockEvent { action, address, bytes, is_named }, StackId(0), None);
}

/// A module is about to be unloaded.
pub(super) fn unloading(context: u64, module: u32) {
    record(|entered| end(entered, |variable| variable.context == context && variable.module == module));
}

/// A context is about to end.
pub(super) fn context_ends(entered: &Entered, context: u64) {
    end(entered, |variable| variable.context == context);
}

fn end(entered: &Entered, is_ended: impl Fn(&Variable) -> bool) {
    let ended: Vec<Variable> =
        with_table(|table| table.variables.extract_if(.., |variable| is_ended(variable)).collect());
    for variable in ended {
        event(entered, &variable.domain, Action::Free, variable.address, variable.bytes);
    }
}

/// A module's file of 64 bits.
struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn bytes(&self, at: u64, bytes: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        self.0.get(at..at.checked_add(usize::try_from(bytes).ok()?)?)
    }

    fn number<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        self.bytes(at, N as u64)?.try_into().ok()
    }

    fn half(&self, at: u64) -> Option<u64> {
        self.number(at).map(u16::from_le_bytes).map(u64::from)
    }

    fn word(&self, at: u64) -> Option<u32> {
        self.number(at).map(u32::from_le_bytes)
    }

    fn long(&self, at: u64) -> Option<u64> {
        self.number(at).map(u64::from_le_bytes)
    }

    /// Text that ends with a zero.
    fn text(&self, at: u64) -> Option<&'a [u8]> {
        let at = self.0.get(usize::try_from(at).ok()?..)?;
        CStr::from_bytes_until_nul(at).ok().map(CStr::to_bytes)
    }

    /// Where the header of a section is.
    fn section(&self, number: u64) -> Option<u64> {
        let (first, bytes, count) = (self.long(40)?, self.half(58)?, self.half(60)?);
        (number < count).then(|| first.checked_add(number * bytes)).flatten()
    }

    fn has_variables(&self, number: u64) -> Option<bool> {
        let names = self.long(self.section(self.half(62)?)?.checked_add(24)?)?;
        let name = self.text(names.checked_add(u64::from(self.word(self.section(number)?)?))?)?;
        Some(SECTIONS.iter().any(|section| name.starts_with(section)))
    }

    /// Where the entries of the table of symbols begin, how many there are, and where their names are.
    fn symbols(&self) -> Option<(u64, u64, u64)> {
        let table = (0..self.half(60)?)
            .filter_map(|number| self.section(number))
            .find(|section| section.checked_add(4).and_then(|at| self.word(at)) == Some(SYMBOLS))?;
        let names = self.section(u64::from(self.word(table.checked_add(40)?)?))?;
        let entries = self.long(table.checked_add(24)?)?;
        Some((entries, self.long(table.checked_add(32)?)? / 24, self.long(names.checked_add(24)?)?))
    }

    fn variable(&self, entry: u64, names: u64) -> Option<(String, u64)> {
        let name = u64::from(self.word(entry)?);
        let [kind] = self.number(entry.checked_add(4)?)?;
        let (section, bytes) = (self.half(entry.checked_add(6)?)?, self.long(entry.checked_add(16)?)?);
        if kind & 15 != OBJECT || bytes == 0 || !self.has_variables(section)? {
            return None;
        }
        let name = self.text(names.checked_add(name)?)?;
        Some((String::from_utf8_lossy(name).into_owned(), bytes))
    }
}

/// Names and sizes of the variables in a module's file; none if it is no such file.
fn variables(file: &[u8]) -> Vec<(String, u64)> {
    let is_elf = file.starts_with(b"\x7fELF\x02\x01") && file.len() < MOST_BYTES;
    let file = File(file);
    let Some((entries, count, names)) = is_elf.then(|| file.symbols()).flatten() else { return Vec::new() };
    let entries = (0..count).map_while(|number| entries.checked_add(number.checked_mul(24)?));
    entries
        .take_while(|entry| file.bytes(*entry, 24).is_some())
        .filter_map(|entry| file.variable(entry, names))
        .take(MOST_VARIABLES)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use floodmark_testkit::TempDir;

    use super::*;

    /// A file with sections of these names: the assembler makes it for this processor, which is the same format.
    fn module() -> Vec<u8> {
        let folder = TempDir::new("statics");
        let source = "
            .section .nv.global,\"aw\",@nobits\n .globl big\n .type big,@object\n .size big,4194304\nbig: .zero 4194304
            .section .nv.global.init,\"aw\",@progbits\n .type small,@object\n .size small,8\nsmall: .zero 8
            .section .nv.constant3,\"a\",@progbits\n .type table,@object\n .size table,100\ntable: .zero 100
            .section .nv.constant0.kernel,\"a\",@progbits\n .type hidden,@object\n .size hidden,64\nhidden: .zero 64
            .text\n .globl kernel\n .type kernel,@function\n .size kernel,1\nkernel: nop\n";
        std::fs::write(folder.join("module.s"), source).expect("can be written");
        let mut compiler = Command::new("cc");
        compiler.arg("-c").arg(folder.join("module.s")).arg("-o").arg(folder.join("module.o"));
        assert!(compiler.status().expect("a compiler").success());
        std::fs::read(folder.join("module.o")).expect("can be read")
    }

    #[test]
    fn variables_of_a_module_are_found() {
        let mut found = variables(&module());
        found.sort();
        let expected = [("big", 4 << 20), ("small", 8), ("table", 100)];
        assert_eq!(found, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn files_that_are_cut_or_wrong_do_no_harm() {
        let whole = module();
        for cut in 0..whole.len() {
            assert!(variables(&whole[..cut]).len() <= 3);
        }
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..3000 {
            let mut wrong = whole.clone();
            for _ in 0..3 {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (number >> 33) as usize % wrong.len();
                wrong[at] = (number >> 20) as u8;
            }
            variables(&wrong);
        }
    }
}
