//! What numbers in tables mean.
//!
//! Exports explain them in tables of their own, which old ones lack. A number that has always meant the
//! same is taken to mean it; another is looked up by its name, then by its label.

use std::borrow::Cow;

use floodmark_event::{Action, Kind, LogLevel};
use floodmark_store::Result;
use rustc_hash::FxHashMap;

use super::export::Export;

/// Kinds of memory by their numbers. CUPTI numbers them otherwise.
const KINDS: [(&str, Kind); 8] = [
    ("PAGEABLE", Kind::Pageable),
    ("PINNED", Kind::Pinned),
    ("DEVICE", Kind::Device),
    ("ARRAY", Kind::Array),
    ("MANAGED", Kind::Managed),
    ("DEVICE_STATIC", Kind::Static),
    ("MANAGED_STATIC", Kind::Static),
    ("UNKNOWN", Kind::Unknown),
];
/// What the names of kinds begin with.
pub(crate) const KIND_PREFIX: &str = "CUDA_MEMOPR_MEMORY_KIND_";
/// What the names of operations begin with.
pub(crate) const OPERATION_PREFIX: &str = "CUDA_DEV_MEM_EVENT_OPR_";
const OPERATIONS: [(&str, Action); 2] = [("ALLOCATION", Action::Alloc), ("DEALLOCATION", Action::Free)];
const LEVELS: [LogLevel; 5] =
    [LogLevel::Unknown, LogLevel::Info, LogLevel::Warning, LogLevel::Error, LogLevel::Verbose];

/// One of the tables that explain numbers: name and label of each.
#[derive(Debug, Default)]
pub(crate) struct Enum(FxHashMap<i64, (String, String)>);

impl Enum {
    /// Reads a table; one that is missing is empty.
    pub(crate) fn read(export: &Export, table: &str) -> Result<Self> {
        let mut words = FxHashMap::default();
        export.scan(table, &["id", "name", "label"], &mut |row| {
            if let Some(id) = row.int(0) {
                let text = |column| row.text(column).map_or_else(String::new, Cow::into_owned);
                words.insert(id, (text(1), text(2)));
            }
            Ok(())
        })?;
        Ok(Self(words))
    }

    fn name(&self, id: i64) -> Option<&str> {
        self.0.get(&id).map(|(name, _)| &**name).filter(|name| !name.is_empty())
    }

    /// Place in `known` of the word for `id`, by its name after `prefix`, then by its label.
    fn place<T>(&self, id: i64, prefix: &str, known: &[(&str, T)]) -> Option<usize> {
        let (name, label) = self.0.get(&id)?;
        let name = name.strip_prefix(prefix).unwrap_or(name);
        let label = label.replace(' ', "_");
        [name, &label]
            .iter()
            .find_map(|word| known.iter().position(|(known, _)| word.eq_ignore_ascii_case(known)))
    }

    /// Number of the word with this name.
    fn id(&self, name: &str) -> Option<i64> {
        self.0.iter().filter(|(_, (known, _))| known == name).map(|(id, _)| *id).min()
    }
}

/// A kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KindWord {
    /// Its number.
    pub(crate) id: i64,
    /// What it is; none if unknown.
    pub(crate) kind: Option<Kind>,
    /// Its name in the export, or what that would be.
    pub(crate) name: String,
}

/// What numbers in the tables of memory and calls mean.
#[derive(Debug)]
pub(crate) struct Words {
    kinds: Enum,
    operations: Enum,
    /// Class of calls of the runtime.
    pub(crate) runtime: i64,
    /// Class of calls of the driver.
    pub(crate) driver: i64,
    /// Class of rows that carry a call's stack.
    pub(crate) backtrace: i64,
}

impl Words {
    pub(crate) fn read(export: &Export) -> Result<Self> {
        let classes = Enum::read(export, "ENUM_NSYS_EVENT_CLASS")?;
        let class = |name: &str, usual| classes.id(&format!("TRACE_PROCESS_EVENT_{name}")).unwrap_or(usual);
        Ok(Self {
            kinds: Enum::read(export, "ENUM_CUDA_MEM_KIND")?,
            operations: Enum::read(export, "ENUM_CUDA_DEV_MEM_EVENT_OPER")?,
            runtime: class("CUDA_RUNTIME", 0),
            driver: class("CUDA_DRIVER", 1),
            backtrace: class("CUDABACKTRACE", 67),
        })
    }

    /// What `memKind` means.
    pub(crate) fn kind(&self, id: i64) -> KindWord {
        let usual = usize::try_from(id).ok().filter(|id| *id < KINDS.len());
        let place = usual.or_else(|| self.kinds.place(id, KIND_PREFIX, &KINDS));
        let name = self.kinds.name(id).map(str::to_owned);
        let name = name.unwrap_or_else(|| match usual {
            Some(place) => format!("{KIND_PREFIX}{}", KINDS[place].0),
            None => format!("{KIND_PREFIX}{id}"),
        });
        KindWord { id, kind: place.map(|place| KINDS[place].1), name }
    }

    /// What `memoryOperationType` means; none if unknown.
    pub(crate) fn operation(&self, id: i64) -> Option<Action> {
        let usual = usize::try_from(id).ok().filter(|id| *id < OPERATIONS.len());
        let place = usual.or_else(|| self.operations.place(id, OPERATION_PREFIX, &OPERATIONS));
        place.map(|place| OPERATIONS[place].1)
    }

    /// Name of an operation in the export, or what that would be.
    pub(crate) fn operation_name(&self, action: Action) -> String {
        let (id, (word, _)) = if action == Action::Free { (1, OPERATIONS[1]) } else { (0, OPERATIONS[0]) };
        self.operations.name(id).map_or_else(|| format!("{OPERATION_PREFIX}{word}"), str::to_owned)
    }
}

/// What severities and sources of messages mean.
#[derive(Debug)]
pub(crate) struct LogWords {
    levels: Enum,
    sources: Enum,
}

impl LogWords {
    pub(crate) fn read(export: &Export) -> Result<Self> {
        Ok(Self {
            levels: Enum::read(export, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL")?,
            sources: Enum::read(export, "ENUM_DIAGNOSTIC_SOURCE_TYPE")?,
        })
    }

    pub(crate) fn level(&self, id: i64) -> LogLevel {
        let known = LogLevel::ALL.map(|level| (level.name(), level));
        let usual = usize::try_from(id).ok().and_then(|id| LEVELS.get(id)).copied();
        let named = || self.levels.place(id, "", &known).map(|place| known[place].1);
        usual.or_else(named).unwrap_or(LogLevel::Unknown)
    }

    /// Component of the tool that wrote the message; empty if unknown.
    pub(crate) fn source(&self, id: i64) -> &str {
        let usual = match id {
            1 => "Injection",
            2 => "Daemon",
            3 => "Analysis",
            _ => "",
        };
        if usual.is_empty() && id != 0 { self.sources.name(id).unwrap_or("") } else { usual }
    }
}
