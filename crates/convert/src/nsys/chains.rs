//! Call chains become stacks, each once.
//!
//! A frame is a small number while the table is read; texts are looked up for the frames that are needed.
//! A table that is not too long is read while others are, before it is known which chains events point to;
//! of a longer one only those are kept.

use std::collections::HashMap;
use std::path::Path;

use floodmark_event::tables::Frame;
use floodmark_event::{StackId, Tables};
use floodmark_store::{Losses, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::{Origin, name_ids};
use super::export::Export;
use super::{Class, DRIVER_MODULE, RUNTIME_MODULE};
use crate::Mode;

pub(crate) const TABLE: &str = "CUDA_CALLCHAINS";
const COLUMNS: [&str; 5] = ["id", "stackDepth", "symbol", "module", "originalIP"];
/// Rows of the longest table that is kept as a whole.
const AHEAD_ROWS_MAX: usize = 4 << 20;
/// A deeper chain is cut.
const DEPTH_MAX: usize = 4096;

/// A frame by the numbers of its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawFrame {
    pub(crate) symbol: Option<i64>,
    pub(crate) module: Option<i64>,
    pub(crate) address: u64,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    chain: i64,
    depth: i32,
    frame: u32,
}

/// The chains that are needed.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    frames: Vec<RawFrame>,
    /// By chain and depth.
    links: Vec<Link>,
    pub(crate) strings: FxHashMap<i64, String>,
}

impl Chains {
    /// Reads all chains, without texts; none if there are too many or something is wrong with them.
    pub(crate) fn read_ahead(path: &Path) -> Option<Self> {
        let export = Export::open(path).ok()?;
        let mut chains = Self::default();
        chains.scan(&export, None).ok()?;
        Some(chains)
    }

    /// Reads the chains that `origins` point to, if they have not been read, and all texts.
    pub(crate) fn read(
        export: &Export,
        origins: &[Origin],
        ahead: Option<Self>,
        mode: Mode,
        losses: &mut Losses,
    ) -> Result<Self> {
        let needed: FxHashSet<i64> = origins.iter().filter_map(|origin| origin.chain).collect();
        let mut chains = ahead.unwrap_or_default();
        if !needed.is_empty() && chains.links.is_empty() {
            let scanned = chains.scan(export, Some(&needed));
            super::tolerate(scanned, mode, losses)?;
        }
        if !chains.links.is_sorted() {
            chains.links.sort_unstable();
        }
        chains.links.dedup_by_key(|link| (link.chain, link.depth));
        let mut wanted = name_ids(origins);
        for frame in &chains.frames {
            wanted.extend([frame.symbol, frame.module].into_iter().flatten());
        }
        let strings = &mut chains.strings;
        let scanned = export.strings(&mut |id, text| {
            if wanted.contains(&id) {
                strings.insert(id, text.to_owned());
            }
        });
        super::tolerate(scanned, mode, losses)?;
        Ok(chains)
    }

    fn scan(&mut self, export: &Export, needed: Option<&FxHashSet<i64>>) -> Result<()> {
        let mut indexes: FxHashMap<RawFrame, u32> = FxHashMap::default();
        let mut latest = None;
        export.scan(TABLE, &COLUMNS, &mut |row| {
            let Some(chain) = row.int(0) else { return Ok(()) };
            match needed {
                Some(needed) if latest != Some(chain) && !needed.contains(&chain) => return Ok(()),
                None if self.links.len() >= AHEAD_ROWS_MAX => {
                    return Err(export.malformed(TABLE, "it is long"));
                }
                _ => latest = Some(chain),
            }
            let depth = row.int(1).unwrap_or(0).clamp(0, i64::from(i32::MAX)) as i32;
            let frame =
                RawFrame { symbol: row.int(2), module: row.int(3), address: row.int(4).unwrap_or(0) as u64 };
            let frame = *indexes.entry(frame).or_insert_with(|| {
                self.frames.push(frame);
                self.frames.len() as u32 - 1
            });
            self.links.push(Link { chain, depth, frame });
            Ok(())
        })
    }

    /// Frames of a chain, innermost first; none if it is missing.
    pub(crate) fn frames(&self, chain: i64) -> impl DoubleEndedIterator<Item = (u32, &RawFrame)> {
        let from = self.links.partition_point(|link| link.chain < chain);
        let count = self.links[from..].iter().take(DEPTH_MAX).take_while(|link| link.chain == chain).count();
        self.links[from..from + count].iter().map(|link| (link.frame, &self.frames[link.frame as usize]))
    }

    pub(crate) fn string(&self, id: Option<i64>) -> Option<&str> {
        id.and_then(|id| self.strings.get(&id)).map(String::as_str)
    }

    /// Adds the stack of every origin to `tables`, in the order of `origins`.
    pub(crate) fn stacks(&self, origins: &[Origin], tables: &mut Tables) -> Vec<StackId> {
        let frames: Vec<u32> = self.frames.iter().map(|frame| self.intern(frame, tables)).collect();
        let mut known: HashMap<i64, StackId> = HashMap::new();
        let stack = |origin: &Origin| {
            if let Some(chain) = origin.chain {
                let stack = *known.entry(chain).or_insert_with(|| {
                    let outermost_first = self.frames(chain).rev();
                    outermost_first.fold(StackId(0), |stack, (frame, _)| {
                        tables.intern_stack(stack, frames[frame as usize])
                    })
                });
                if stack.0 != 0 {
                    return stack;
                }
            }
            let module = match origin.class {
                Class::Valid => RUNTIME_MODULE,
                Class::Driver => DRIVER_MODULE,
                Class::Invalid => return StackId(0),
            };
            let function = tables.intern(self.string(Some(origin.name)).unwrap_or("(unknown function)"));
            let module = tables.intern(module);
            let frame = tables.intern_frame(Frame { function, module, ..Frame::default() });
            tables.intern_stack(StackId(0), frame)
        };
        origins.iter().map(stack).collect()
    }

    fn intern(&self, frame: &RawFrame, tables: &mut Tables) -> u32 {
        let symbol = self.string(frame.symbol).unwrap_or("");
        // What could not be resolved has its address for a name.
        let is_address = symbol.strip_prefix("0x").is_some_and(|digits| {
            u64::from_str_radix(digits, 16).is_ok_and(|address| address == frame.address)
        });
        let function = tables.intern(if is_address { "" } else { symbol });
        let module = tables.intern(self.string(frame.module).unwrap_or(""));
        tables.intern_frame(Frame { function, module, address: frame.address, ..Frame::default() })
    }
}
