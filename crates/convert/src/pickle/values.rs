//! Values of a pickle: small copies that point to texts and containers, each of which is held once.

use rustc_hash::FxHashMap;

/// A text in [`Values`]. Short texts that are equal have one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TextId(pub(crate) u32);

/// A container in [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(pub(crate) u32);

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// None, bytes, a tuple of numbers, a number too large: nothing that is used here.
    Other,
    Bool(bool),
    Int(i64),
    /// A whole number from 2^63 to below 2^64.
    Large(u64),
    Float(f64),
    Text(TextId),
    Node(NodeId),
}

impl Value {
    /// The value as a number that is not negative.
    pub(crate) fn whole(self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(number).ok(),
            Self::Large(number) => Some(number),
            _ => None,
        }
    }

    /// The value as a number.
    pub(crate) fn int(self) -> Option<i64> {
        if let Self::Int(number) = self { Some(number) } else { None }
    }

    fn is_plain(self) -> bool {
        !matches!(self, Self::Text(_) | Self::Node(_))
    }
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) enum Node<M> {
    /// A list, tuple or set.
    List(Vec<Value>),
    /// Keys and values by turns.
    Dict(Vec<Value>),
    /// What `collections.OrderedDict` is before it is called.
    DictType,
    /// What it was replaced by.
    Made(M),
}

/// Texts that are short enough to be compared with all others.
const SHORT_BYTES: usize = 64;
/// What a value, a container and a text cost beside what they hold.
const VALUE_BYTES: u64 = 16;
const NODE_BYTES: u64 = 48;
const TEXT_BYTES: u64 = 40;

/// All texts and containers of a pickle.
#[derive(Debug)]
pub(crate) struct Values<M> {
    texts: Vec<Box<str>>,
    text_ids: FxHashMap<Box<str>, TextId>,
    nodes: Vec<Node<M>>,
    /// About how many bytes all of it takes.
    held_bytes: u64,
}

impl<M: Copy> Values<M> {
    /// Begins with `words`, whose ids are their indexes.
    pub(crate) fn new(words: &[&str]) -> Self {
        let mut values =
            Self { texts: Vec::new(), text_ids: FxHashMap::default(), nodes: Vec::new(), held_bytes: 0 };
        for word in words {
            values.add_text(word);
        }
        values
    }

    /// About how many bytes all of it takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Counts bytes that are held somewhere else on behalf of the pickle.
    pub(crate) fn hold(&mut self, bytes: u64) {
        self.held_bytes += bytes;
    }

    pub(crate) fn add_text(&mut self, text: &str) -> TextId {
        if text.len() <= SHORT_BYTES
            && let Some(id) = self.text_ids.get(text)
        {
            return *id;
        }
        let id = TextId(self.texts.len() as u32);
        self.held_bytes += TEXT_BYTES + text.len() as u64;
        self.texts.push(text.into());
        if text.len() <= SHORT_BYTES {
            self.held_bytes += TEXT_BYTES + text.len() as u64;
            self.text_ids.insert(text.into(), id);
        }
        id
    }

    pub(crate) fn text(&self, id: TextId) -> &str {
        self.texts.get(id.0 as usize).map_or("", |text| text)
    }

    /// The text of a value that is one.
    pub(crate) fn text_of(&self, value: Value) -> Option<&str> {
        if let Value::Text(id) = value { Some(self.text(id)) } else { None }
    }

    pub(super) fn add(&mut self, node: Node<M>) -> Value {
        if let Node::List(items) | Node::Dict(items) = &node {
            self.held_bytes += VALUE_BYTES * items.len() as u64;
        }
        self.held_bytes += NODE_BYTES;
        self.nodes.push(node);
        Value::Node(NodeId(self.nodes.len() as u32 - 1))
    }

    /// A tuple; one of plain numbers is not kept.
    pub(super) fn tuple(&mut self, items: &[Value]) -> Value {
        if items.iter().all(|item| item.is_plain()) {
            return Value::Other;
        }
        self.add(Node::List(items.to_vec()))
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node<M>> {
        self.nodes.get(id.0 as usize)
    }

    /// What a container was replaced by.
    pub(crate) fn made(&self, value: Value) -> Option<M> {
        let Value::Node(id) = value else { return None };
        if let Some(Node::Made(made)) = self.node(id) { Some(*made) } else { None }
    }

    /// The items of a list.
    pub(crate) fn list(&self, value: Value) -> Option<&[Value]> {
        let Value::Node(id) = value else { return None };
        if let Some(Node::List(items)) = self.node(id) { Some(items) } else { None }
    }

    /// Keys and values of a dict.
    pub(crate) fn dict(&self, value: Value) -> Option<&[Value]> {
        let Value::Node(id) = value else { return None };
        if let Some(Node::Dict(items)) = self.node(id) { Some(items) } else { None }
    }

    /// The value of `key` in the keys and values of a dict.
    pub(crate) fn at(items: &[Value], key: TextId) -> Option<Value> {
        let pairs = items.chunks_exact(2);
        pairs.rev().find(|pair| pair[0] == Value::Text(key)).map(|pair| pair[1])
    }

    /// Replaces a container, whose items are given up.
    pub(crate) fn replace(&mut self, id: NodeId, made: M) {
        let Some(node) = self.nodes.get_mut(id.0 as usize) else { return };
        if let Node::List(items) | Node::Dict(items) = node {
            self.held_bytes = self.held_bytes.saturating_sub(VALUE_BYTES * items.len() as u64);
        }
        *node = Node::Made(made);
    }

    /// Appends to a list, or keys and values to a dict.
    pub(super) fn extend(&mut self, id: NodeId, items: &[Value]) {
        if let Some(Node::List(own) | Node::Dict(own)) = self.nodes.get_mut(id.0 as usize) {
            own.extend_from_slice(items);
            self.held_bytes += VALUE_BYTES * items.len() as u64;
        }
    }
}
