//! Rules that a thread remembers by the addresses at which they hold.
#![expect(unsafe_code, reason = "makes a large table in place")]

use crate::loader::{Loads, Modules};
use crate::rules::{Context, Rule, rule_at};

/// Lines of rules: 64 KiB, of which a thread touches what it needs.
const LINES: usize = 1024;

/// Rules that share a line of the processor's cache.
#[repr(C, align(64))]
struct Line([Entry; 4]);

#[derive(Clone, Copy)]
#[repr(C)]
struct Entry {
    /// Address at which the rule holds; 0 for none.
    address: u64,
    rule: Rule,
}

/// What a look into the tables of the modules found.
#[derive(Clone, Copy)]
pub(super) struct Looked {
    rule: Rule,
    loads: Loads,
}

/// Looks for the rule at an address in the tables of its module.
pub(super) fn look_up(address: u64, modules: &mut Modules, context: &mut Context) -> Looked {
    let rule = modules.look(address, |module| rule_at(address, module, context));
    Looked { rule: rule.unwrap_or(Rule::OTHER), loads: modules.loads() }
}

/// The rules; zeros are none.
#[repr(C)]
pub(super) struct RememberedRules {
    lines: [Line; LINES],
    /// What was loaded when they were found.
    loads: Loads,
}

impl RememberedRules {
    /// None, in memory of its own: they are too large for a small stack.
    pub(super) fn boxed() -> Box<Self> {
        let mut rules = Box::<Self>::new_uninit();
        let place = rules.as_mut_ptr();
        // SAFETY: the place is valid, and both fields are written before they are taken as such.
        unsafe {
            let lines = (&raw mut (*place).lines).cast::<Line>();
            for at in 0..LINES {
                lines.add(at).write(Line::EMPTY);
            }
            (&raw mut (*place).loads).write(Loads::now());
            rules.assume_init()
        }
    }

    /// The rule at an address, if it is remembered.
    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<Rule> {
        let Line(entries) = &self.lines[line_of(address)];
        entries.iter().find(|entry| entry.address == address).map(|entry| entry.rule)
    }

    /// Remembers what was looked up; returns the rule, and whether a module was unloaded, in which case nothing else
    /// is remembered any more.
    pub(super) fn learn(&mut self, address: u64, looked: Looked) -> (Rule, bool) {
        let is_stale = self.forget_unloaded(looked.loads);
        self.remember(address, looked.rule);
        (looked.rule, is_stale)
    }

    /// Remembers a rule instead of the one of its line that was remembered first.
    pub(super) fn remember(&mut self, address: u64, rule: Rule) {
        let Line(entries) = &mut self.lines[line_of(address)];
        match entries.iter_mut().find(|entry| entry.address == address) {
            Some(entry) => entry.rule = rule,
            None => {
                entries.rotate_right(1);
                entries[0] = Entry { address, rule };
            }
        }
    }

    /// Forgets everything if a module was unloaded before `loads` was read; returns whether.
    pub(super) fn forget_unloaded(&mut self, loads: Loads) -> bool {
        let is_stale = loads.unloaded_since(self.loads);
        if is_stale {
            self.forget();
        }
        self.loads = loads;
        is_stale
    }

    /// Forgets everything.
    pub(super) fn forget(&mut self) {
        self.lines.fill_with(|| Line::EMPTY);
    }
}

impl Line {
    const EMPTY: Self = Self([Entry { address: 0, rule: Rule::OTHER }; 4]);
}

/// The line of an address.
#[inline]
const fn line_of(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LINES.trailing_zeros())) as usize
}
