//! The machine that a pickle is a program for.

use std::io::{self, Read};

use rustc_hash::FxHashMap;

use super::input::Input;
use super::opcode;
use super::values::{Node, NodeId, Value, Values};
use super::{Build, TextId};
use crate::quote::quoted;

/// Why reading stopped.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The input ended.
    End,
    /// The input failed.
    Io(io::Error),
    /// What was read makes no sense, or is refused.
    Bad {
        /// Where, in bytes from the beginning.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

impl Fault {
    /// Invalid input at a position that the caller knows.
    pub(super) fn bad(reason: impl Into<String>) -> Self {
        Self::Bad { offset: 0, reason: reason.into() }
    }
}

type Result<T> = std::result::Result<T, Fault>;

/// How far a pickle may expand in memory: real ones stay below four times their length.
const EXPANSION_MAX: u64 = 16;
const HELD_BYTES_MIN: u64 = if cfg!(fuzzing) { 1 << 20 } else { 64 << 20 };

/// Reads one pickle and returns the value it is about.
///
/// # Errors
/// [`Fault::Bad`] names the place and the opcode.
pub(crate) fn read<R: Read, B: Build>(
    input: &mut Input<R>,
    build: &mut B,
    values: &mut Values<B::Made>,
) -> Result<Value> {
    let mut machine =
        Machine { input, build, values, stack: Vec::new(), marks: Vec::new(), memo: Memo::default() };
    machine.run()
}

/// Values by number. Writers count up from 0 or 1, so most are in a vector.
#[derive(Debug, Default)]
struct Memo {
    dense: Vec<Value>,
    sparse: FxHashMap<u64, Value>,
}

impl Memo {
    fn put(&mut self, at: u64, value: Value) {
        match (at as usize).cmp(&self.dense.len()) {
            std::cmp::Ordering::Less => self.dense[at as usize] = value,
            std::cmp::Ordering::Equal => self.dense.push(value),
            std::cmp::Ordering::Greater => {
                self.sparse.insert(at, value);
            }
        }
    }

    #[inline]
    fn get(&self, at: u64) -> Option<Value> {
        self.dense.get(at as usize).or_else(|| self.sparse.get(&at)).copied()
    }

    fn len(&self) -> u64 {
        (self.dense.len() + self.sparse.len()) as u64
    }
}

struct Machine<'a, R, B: Build> {
    input: &'a mut Input<R>,
    build: &'a mut B,
    values: &'a mut Values<B::Made>,
    stack: Vec<Value>,
    /// Lengths the stack had when marks were set.
    marks: Vec<usize>,
    memo: Memo,
}

impl<R: Read, B: Build> Machine<'_, R, B> {
    fn run(&mut self) -> Result<Value> {
        loop {
            let offset = self.input.offset();
            let opcode = match self.input.byte() {
                Err(Fault::End) => {
                    let reason = "the file ends before the pickle does".to_owned();
                    return Err(Fault::Bad { offset, reason });
                }
                other => other?,
            };
            let step = self.step(opcode).and_then(|more| self.check_memory().map(|()| more));
            match step {
                Ok(true) => {}
                Ok(false) => {
                    let empty = |_| Fault::Bad { offset, reason: "STOP: the stack is empty".to_owned() };
                    return self.pop().map_err(empty);
                }
                Err(Fault::Io(error)) => return Err(Fault::Io(error)),
                Err(Fault::End) => {
                    let name = opcode::name(opcode).unwrap_or("?");
                    return Err(Fault::Bad {
                        offset,
                        reason: format!("the file ends in the middle of {name}"),
                    });
                }
                Err(Fault::Bad { reason, .. }) => {
                    let name = opcode::name(opcode).unwrap_or("?");
                    return Err(Fault::Bad { offset, reason: format!("{name}: {reason}") });
                }
            }
        }
    }

    #[inline]
    fn check_memory(&self) -> Result<()> {
        let own = 16 * (self.stack.len() as u64 + self.memo.len()) + 8 * self.marks.len() as u64;
        let most = HELD_BYTES_MIN + EXPANSION_MAX * self.input.offset();
        if self.values.held_bytes() + own > most {
            return Err(Fault::bad(format!(
                "what was read so far would take more than {most} bytes of memory"
            )));
        }
        Ok(())
    }

    /// Takes one step; whether there is more to come.
    fn step(&mut self, opcode: u8) -> Result<bool> {
        match opcode {
            b'.' => return Ok(false),
            b'h' => {
                let at = self.input.byte()?;
                self.get(u64::from(at))?;
            }
            b'j' => {
                let at = u32::from_le_bytes(self.input.array()?);
                self.get(u64::from(at))?;
            }
            0x94 => self.put(self.memo.len())?,
            b'(' => self.marks.push(self.stack.len()),
            b'K' => {
                let number = self.input.byte()?;
                self.stack.push(Value::Int(i64::from(number)));
            }
            b'M' => {
                let number = u16::from_le_bytes(self.input.array()?);
                self.stack.push(Value::Int(i64::from(number)));
            }
            b'J' => {
                let number = i32::from_le_bytes(self.input.array()?);
                self.stack.push(Value::Int(i64::from(number)));
            }
            0x8a => {
                let len = self.input.byte()?;
                self.long(u64::from(len))?;
            }
            0x8b => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.long(u64::from(len))?;
            }
            0x8c | b'U' => {
                let len = self.input.byte()?;
                self.text(u64::from(len))?;
            }
            b'X' | b'T' => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.text(u64::from(len))?;
            }
            0x8d => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.text(len)?;
            }
            b'}' => self.push_node(Node::Dict(Vec::new())),
            b']' | 0x8f => self.push_node(Node::List(Vec::new())),
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.fill_dict(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_marked()?;
                self.fill_dict(&items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.fill_list(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.pop_marked()?;
                self.fill_list(&items)?;
            }
            b'N' => self.stack.push(Value::Other),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'G' => {
                let number = f64::from_be_bytes(self.input.array()?);
                self.stack.push(Value::Float(number));
            }
            0x95 => {
                // Frames tell how much to read at once, which is not needed here.
                self.input.array::<8>()?;
            }
            0x80 => {
                let version = self.input.byte()?;
                if version > 5 {
                    return Err(Fault::bad(format!("protocol {version} is not known; 5 is the newest")));
                }
            }
            _ => self.step_seldom(opcode)?,
        }
        Ok(true)
    }

    /// Opcodes of old protocols, and those that hardly occur.
    fn step_seldom(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            b'0' => {
                // A mark may be on top.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            b'1' => drop(self.pop_marked()?),
            b'2' => {
                let top = self.stack.last().copied().ok_or_else(|| Fault::bad("the stack is empty"))?;
                self.stack.push(top);
            }
            b'd' => {
                let items = self.pop_marked()?;
                self.push_node(Node::Dict(Vec::new()));
                self.fill_dict(&items)?;
            }
            b'l' | 0x91 => {
                let items = self.pop_marked()?;
                self.push_node(Node::List(Vec::new()));
                self.fill_list(&items)?;
            }
            b't' => {
                let items = self.pop_marked()?;
                self.push_tuple(&items)?;
            }
            b')' => self.stack.push(Value::Other),
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let at =
                    self.stack.len().checked_sub(count).ok_or_else(|| Fault::bad("the stack is empty"))?;
                let items = self.stack.split_off(at);
                self.push_tuple(&items)?;
            }
            b'C' => {
                let len = self.input.byte()?;
                self.bytes(u64::from(len))?;
            }
            b'B' => {
                let len = u32::from_le_bytes(self.input.array()?);
                self.bytes(u64::from(len))?;
            }
            0x8e | 0x96 => {
                let len = u64::from_le_bytes(self.input.array()?);
                self.bytes(len)?;
            }
            b'q' => {
                let at = self.input.byte()?;
                self.put(u64::from(at))?;
            }
            b'r' => {
                let at = u32::from_le_bytes(self.input.array()?);
                self.put(u64::from(at))?;
            }
            b'p' => {
                let at = self.number_line()?;
                self.put(at)?;
            }
            b'g' => {
                let at = self.number_line()?;
                self.get(at)?;
            }
            b'F' | b'I' | b'L' | b'S' | b'V' => self.line(opcode)?,
            b'c' => {
                let module = String::from_utf8_lossy(self.input.line()?).into_owned();
                let name = String::from_utf8_lossy(self.input.line()?).into_owned();
                self.import(&module, &name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let [module, name] =
                    [module, name].map(|value| self.values.text_of(value).map(str::to_owned));
                let (Some(module), Some(name)) = (module, name) else {
                    return Err(Fault::bad("what it would import is no text"));
                };
                self.import(&module, &name)?;
            }
            b'R' => self.call()?,
            _ => return Err(refused(opcode)),
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Value> {
        if self.marks.last().is_some_and(|mark| *mark >= self.stack.len()) {
            return Err(Fault::bad("there is no value on top of the stack"));
        }
        self.stack.pop().ok_or_else(|| Fault::bad("the stack is empty"))
    }

    /// Takes what is above the last mark.
    fn pop_marked(&mut self) -> Result<Vec<Value>> {
        let mark = self.marks.pop().ok_or_else(|| Fault::bad("no mark was set"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn push_node(&mut self, node: Node<B::Made>) {
        let value = self.values.add(node);
        self.stack.push(value);
    }

    fn put(&mut self, at: u64) -> Result<()> {
        let top = self.stack.last().copied().ok_or_else(|| Fault::bad("the stack is empty"))?;
        self.memo.put(at, top);
        Ok(())
    }

    #[inline]
    fn get(&mut self, at: u64) -> Result<()> {
        let value = self.memo.get(at).ok_or_else(|| Fault::bad(format!("the memo has no value {at}")))?;
        self.stack.push(value);
        Ok(())
    }

    fn long(&mut self, len: u64) -> Result<()> {
        let bytes = self.input.bytes(len)?;
        self.stack.push(number_of(bytes));
        Ok(())
    }

    fn text(&mut self, len: u64) -> Result<()> {
        let bytes = self.input.bytes(len)?;
        let id = match str::from_utf8(bytes) {
            Ok(text) => self.values.add_text(text),
            Err(_) => self.values.add_text(&String::from_utf8_lossy(bytes)),
        };
        self.stack.push(Value::Text(id));
        Ok(())
    }

    fn bytes(&mut self, len: u64) -> Result<()> {
        self.input.skip(len)?;
        self.stack.push(Value::Other);
        Ok(())
    }

    fn push_tuple(&mut self, items: &[Value]) -> Result<()> {
        for item in items {
            self.build.consume(None, *item, self.values).map_err(Fault::bad)?;
        }
        let tuple = self.values.tuple(items);
        self.stack.push(tuple);
        Ok(())
    }

    /// The container on top of the stack, which has to be of the sort that `is_such` tells.
    fn top_node(&self, is_such: fn(&Node<B::Made>) -> bool, sort: &str) -> Result<NodeId> {
        let top = self.stack.last().copied();
        let Some(Value::Node(id)) = top else {
            return Err(Fault::bad(format!("there is no {sort} to fill")));
        };
        match self.values.node(id) {
            Some(node) if is_such(node) => Ok(id),
            Some(Node::Made(_)) => Err(Fault::bad(format!("the {sort} grows after it was used"))),
            _ => Err(Fault::bad(format!("there is no {sort} to fill"))),
        }
    }

    fn fill_list(&mut self, items: &[Value]) -> Result<()> {
        let id = self.top_node(|node| matches!(node, Node::List(_)), "list")?;
        for item in items {
            self.build.consume(None, *item, self.values).map_err(Fault::bad)?;
        }
        self.values.extend(id, items);
        Ok(())
    }

    fn fill_dict(&mut self, items: &[Value]) -> Result<()> {
        if !items.len().is_multiple_of(2) {
            return Err(Fault::bad("a key has no value"));
        }
        let id = self.top_node(|node| matches!(node, Node::Dict(_)), "dict")?;
        for pair in items.chunks_exact(2) {
            let key: Option<TextId> = if let Value::Text(id) = pair[0] { Some(id) } else { None };
            self.build.consume(key, pair[1], self.values).map_err(Fault::bad)?;
        }
        self.values.extend(id, items);
        Ok(())
    }

    fn number_line(&mut self) -> Result<u64> {
        let line = self.input.line()?;
        let number = str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| Fault::bad(format!("{} is no number", quoted(line))))
    }

    /// A value that is written as a line.
    fn line(&mut self, opcode: u8) -> Result<()> {
        let line = self.input.line()?;
        let text = String::from_utf8_lossy(line).into_owned();
        let bad = || Fault::bad(format!("{} is no number", quoted(text.as_bytes())));
        let value = match opcode {
            b'F' => Value::Float(text.trim().parse().map_err(|_| bad())?),
            b'I' if text == "01" => Value::Bool(true),
            b'I' if text == "00" => Value::Bool(false),
            b'I' | b'L' => {
                let digits = text.trim().trim_end_matches('L');
                let number: i128 = digits.parse().map_err(|_| bad())?;
                value_of(number)
            }
            b'S' => {
                let text = text.trim().trim_matches(['\'', '"']);
                Value::Text(self.values.add_text(text))
            }
            _ => Value::Text(self.values.add_text(&text)),
        };
        self.stack.push(value);
        Ok(())
    }

    /// Refuses to import anything but the one type that is plain data under another name.
    fn import(&mut self, module: &str, name: &str) -> Result<()> {
        if (module, name) == ("collections", "OrderedDict") {
            self.push_node(Node::DictType);
            return Ok(());
        }
        let what = quoted(format!("{module}.{name}").as_bytes());
        Err(Fault::bad(format!(
            "it would import {what}; nothing of a file is run, and memory snapshots import nothing"
        )))
    }

    fn call(&mut self) -> Result<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let is_dict_type = matches!(function, Value::Node(id)
            if matches!(self.values.node(id), Some(Node::DictType)));
        if !is_dict_type || arguments != Value::Other {
            return Err(Fault::bad("it would call something; nothing of a file is run"));
        }
        self.push_node(Node::Dict(Vec::new()));
        Ok(())
    }
}

/// Why an opcode is not followed.
fn refused(opcode: u8) -> Fault {
    match opcode {
        b'P' | b'Q' => Fault::bad("it stands for something outside the file, as in files of torch.save"),
        b'b' | b'i' | b'o' | 0x81 | 0x92 => {
            Fault::bad("it would make an object of a class; nothing of a file is run")
        }
        0x82..=0x84 => Fault::bad("it stands for something that is registered elsewhere"),
        0x97 | 0x98 => Fault::bad("it stands for a buffer outside the file"),
        other => Fault::bad(format!("there is no opcode {other:#04x}; the file is no pickle, or is damaged")),
    }
}

/// A number of little-endian bytes with a sign.
fn number_of(bytes: &[u8]) -> Value {
    if bytes.len() > 16 {
        return Value::Other;
    }
    let is_negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut all = [if is_negative { 0xff } else { 0 }; 16];
    all[..bytes.len()].copy_from_slice(bytes);
    value_of(i128::from_le_bytes(all))
}

fn value_of(number: i128) -> Value {
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => Value::Int(number),
        (_, Ok(number)) => Value::Large(number),
        _ => Value::Other,
    }
}
