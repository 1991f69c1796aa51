//! An export as three tables of text: events with stacks, events of the driver, and others.
//!
//! Columns are those of the scripts that came first: `PID` is the global id, times count from the start of
//! the capture, kinds and operations have their names of the export, and a stack is `function(module)`
//! joined by ` -> `, innermost first.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use floodmark_store::{Error, Losses, Result};

use super::calls::{self, Origin};
use super::chains::{Chains, RawFrame};
use super::export::Export;
use super::memory::{Memory, MemoryRow};
use super::words::Words;
use super::{Class, RUNTIME_MODULE};
use crate::Mode;

/// The first line of each table.
pub const HEADER: &str = "PID\taddress\tstart_time\tbytes\tmemkind\tmem_op_type\tvar_name\tcall_stack";
/// What stands for the stack of an event that has none.
pub const NO_STACK: &str = "STACK_NOT_FOUND";

/// What a split wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Files with their rows, in the order of [`Class::ALL`].
    pub files: Vec<(PathBuf, u64)>,
    /// What is missing from them.
    pub losses: Losses,
}

/// Name of the table of a class: `PREFIX_valid.tsv`.
pub fn table_path(prefix: &Path, class: Class) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(format!("_{}.tsv", class.name()));
    path.into()
}

/// Writes the events of the export at `path` to three tables.
///
/// # Errors
/// What is wrong with the export, or with writing.
pub fn split(path: &Path, prefix: &Path, mode: Mode) -> Result<Split> {
    let stored = super::report::database(path)?;
    let export = Export::open(stored.path())?;
    let mut losses = Losses::default();
    let words = Words::read(&export)?;
    let mut memory = Memory::read(&export, &words, mode, &mut losses)?;
    let calls = calls::join(&export, &words, &mut memory, mode, &mut losses)?;
    let chains = Chains::read(&export, &calls.origins, None, mode, &mut losses)?;
    let texts = Texts { memory: &memory, words: &words, origins: &calls.origins, chains: &chains };
    let mut files = Vec::new();
    for class in Class::ALL {
        let path = table_path(prefix, class);
        let mut rows = 0;
        let mut write = || -> std::io::Result<()> {
            let mut file = BufWriter::new(File::create(&path)?);
            writeln!(file, "{HEADER}")?;
            for row in memory.rows.iter().filter(|row| row.class == class) {
                texts.write(row, &mut file)?;
                rows += 1;
            }
            file.flush()
        };
        write().map_err(Error::io("writing", &path))?;
        files.push((path, rows));
    }
    Ok(Split { files, losses })
}

struct Texts<'a> {
    memory: &'a Memory,
    words: &'a Words,
    origins: &'a [Origin],
    chains: &'a Chains,
}

impl Texts<'_> {
    fn write(&self, row: &MemoryRow, out: &mut impl Write) -> std::io::Result<()> {
        let process = self.memory.processes[row.process as usize].global();
        let kind = &self.memory.kinds[usize::from(row.kind)].name;
        let operation = self.words.operation_name(row.action);
        let name = &self.memory.names[row.name as usize];
        // As a signed number, which is what the export has.
        let address = row.address as i64;
        write!(out, "{process}\t{address}\t{}\t{}\t", row.start_ns, row.bytes)?;
        writeln!(out, "{}\t{}\t{}\t{}", field(kind), field(&operation), field(name), self.stack(row))
    }

    fn stack(&self, row: &MemoryRow) -> String {
        let origin = &self.origins[row.origin as usize];
        let function = || field(self.chains.string(Some(origin.name)).unwrap_or("??"));
        match row.class {
            Class::Invalid => NO_STACK.to_owned(),
            Class::Driver => function(),
            Class::Valid => {
                let frames = origin.chain.into_iter().flat_map(|chain| self.chains.frames(chain));
                let text = frames.map(|(_, frame)| self.frame(frame)).collect::<Vec<_>>().join(" -> ");
                if text.is_empty() { format!("{}({RUNTIME_MODULE})", function()) } else { text }
            }
        }
    }

    fn frame(&self, frame: &RawFrame) -> String {
        let module = field(self.chains.string(frame.module).unwrap_or("??"));
        match self.chains.string(frame.symbol) {
            Some(symbol) => format!("{}({module})", field(symbol)),
            None => format!("{:#x}({module})", frame.address),
        }
    }
}

/// A text that does not end its field or line.
fn field(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}
