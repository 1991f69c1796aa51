//! Reads Python's pickles without Python: data only, nothing is ever run or imported.
//!
//! A pickle is a program for a small machine with a stack and a memo. [`read`] runs it as far as it makes
//! plain data: numbers, text, lists, tuples, dicts and sets of them. Whatever would import or call
//! something is refused, with the place and the name of what it wants.
//!
//! What the data is for is up to a [`Build`]: it sees every value that becomes part of another and may
//! replace a container by something smaller, so that a file is never held as a tree of its values.
//! Containers that the memo shares are shared here. Nothing here recurses, so neither depth nor cycles
//! matter; memory is bounded by a multiple of what was read.

mod input;
mod machine;
mod opcode;
mod values;

pub(crate) use input::Input;
pub(crate) use machine::{Fault, read};
pub(crate) use values::{Node, NodeId, TextId, Value, Values};

/// What is made of the values of a pickle.
pub(crate) trait Build {
    /// What containers may be replaced by.
    type Made: Copy + std::fmt::Debug;

    /// `value` becomes part of another: of a dict under `key`, or of a list.
    ///
    /// # Errors
    /// What is wrong with it.
    fn consume(
        &mut self,
        key: Option<TextId>,
        value: Value,
        values: &mut Values<Self::Made>,
    ) -> Result<(), String>;
}
