//! Streams the JSON of a trace and keeps what is about memory.
//!
//! Values of another sort than expected are passed over, not errors: a trace holds what many tools add.

use std::fmt;
use std::io::Read;

use rustc_hash::FxHashMap;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What is kept of a trace.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) memory: Vec<Memory>,
    pub(super) ranges: Vec<Range>,
    /// Names of ranges.
    pub(super) names: Vec<String>,
    name_ids: FxHashMap<String, usize>,
    /// What times count from.
    pub(super) base_ns: i64,
    pub(super) malformed: u64,
    pub(super) cut_off: u64,
}

/// A `[memory]` event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) time_ns: i64,
    pub(super) thread: u64,
    pub(super) device_type: i64,
    pub(super) device: i32,
    pub(super) address: u64,
    pub(super) bytes: i64,
    pub(super) live: Option<u64>,
    pub(super) reserved: Option<u64>,
}

/// A named range of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: u64,
    pub(super) name: usize,
}

/// Reads a trace into `trace`, which keeps what came before an error.
pub(super) fn read(input: impl Read, trace: &mut Trace) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_reader(input);
    Top(trace).deserialize(&mut json)?;
    json.end()
}

/// A number, text, or anything else.
#[derive(Clone, Debug, Default)]
enum Scalar {
    #[default]
    Other,
    Int(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Float(number) if number.is_finite() => Some(*number as i128),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Microseconds as nanoseconds.
    fn micros_ns(&self) -> Option<i64> {
        match self {
            Self::Int(us) => i64::try_from(us.checked_mul(1000)?).ok(),
            Self::Float(us) => {
                let ns = (us * 1000.0).round();
                (ns.abs() < 9e18).then_some(ns as i64)
            }
            _ => None,
        }
    }
}

/// Reads a [`Scalar`].
struct ReadScalar;

impl<'de> DeserializeSeed<'de> for ReadScalar {
    type Value = Scalar;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Scalar, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadScalar {
    type Value = Scalar;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("any value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }
    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Int(i128::from(number)))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Int(i128::from(number)))
    }
    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Scalar::Float(number))
    }
    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

/// Says what is done with values of another sort: nothing.
macro_rules! passes_over_scalars {
    ($value:ty, $of:expr) => {
        fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
            text.write_str("a trace of events")
        }
        fn visit_bool<E>(self, _: bool) -> Result<$value, E> {
            Ok($of)
        }
        fn visit_u64<E>(self, _: u64) -> Result<$value, E> {
            Ok($of)
        }
        fn visit_i64<E>(self, _: i64) -> Result<$value, E> {
            Ok($of)
        }
        fn visit_f64<E>(self, _: f64) -> Result<$value, E> {
            Ok($of)
        }
        fn visit_str<E>(self, _: &str) -> Result<$value, E> {
            Ok($of)
        }
        fn visit_unit<E>(self) -> Result<$value, E> {
            Ok($of)
        }
    };
}

/// The whole document: an object with the events, or the events alone.
struct Top<'a>(&'a mut Trace);

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("an object with traceEvents, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(key) = items.next_key::<String>()? {
            match &*key {
                "traceEvents" => items.next_value_seed(Events(self.0))?,
                "baseTimeNanoseconds" => {
                    let base = items.next_value_seed(ReadScalar)?.int();
                    self.0.base_ns = base.and_then(|base| i64::try_from(base).ok()).unwrap_or(0);
                }
                _ => drop(items.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(OneEvent(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// The events.
struct Events<'a>(&'a mut Trace);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(OneEvent(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// One event.
struct OneEvent<'a>(&'a mut Trace);

impl<'de> DeserializeSeed<'de> for OneEvent<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneEvent<'_> {
    type Value = ();

    passes_over_scalars!((), ());

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let (mut name, mut category, mut time, mut duration, mut thread, mut args) = Default::default();
        while let Some(key) = items.next_key::<String>()? {
            let place: &mut Scalar = match &*key {
                "name" => &mut name,
                "cat" => &mut category,
                "ts" => &mut time,
                "dur" => &mut duration,
                "tid" => &mut thread,
                "args" => {
                    args = items.next_value_seed(ReadArgs)?;
                    continue;
                }
                _ => {
                    items.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = items.next_value_seed(ReadScalar)?;
        }
        let (Scalar::Text(name), Scalar::Text(category)) = (name, category) else { return Ok(()) };
        let thread = thread.int().and_then(|thread| u64::try_from(thread).ok()).unwrap_or(0);
        if name == "[memory]" {
            self.0.add_memory(time.micros_ns(), thread, &args);
        } else if category == "user_annotation"
            && let (Some(start_ns), Some(duration_ns)) = (time.micros_ns(), duration.micros_ns())
        {
            let end_ns = start_ns.saturating_add(duration_ns.max(0));
            let name = self.0.name(name);
            self.0.ranges.push(Range { start_ns, end_ns, thread, name });
        }
        Ok(())
    }
}

impl Trace {
    fn name(&mut self, name: String) -> usize {
        *self.name_ids.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }

    fn add_memory(&mut self, time_ns: Option<i64>, thread: u64, args: &Args) {
        let whole = |scalar: &Scalar| scalar.int().and_then(|number| u64::try_from(number).ok());
        let bytes = args.bytes.int().and_then(|bytes| i64::try_from(bytes).ok());
        let (Some(time_ns), Some(address), Some(bytes)) = (time_ns, whole(&args.address), bytes) else {
            self.malformed += 1;
            return;
        };
        let device = args.device.int().and_then(|device| i32::try_from(device).ok());
        self.memory.push(Memory {
            time_ns,
            thread,
            device_type: args.device_type.int().and_then(|sort| i64::try_from(sort).ok()).unwrap_or(0),
            device: device.filter(|device| *device >= 0).unwrap_or(0),
            address,
            bytes,
            live: whole(&args.live),
            reserved: whole(&args.reserved),
        });
    }
}

/// What a `[memory]` event says.
#[derive(Clone, Debug, Default)]
struct Args {
    device_type: Scalar,
    device: Scalar,
    address: Scalar,
    bytes: Scalar,
    live: Scalar,
    reserved: Scalar,
}

struct ReadArgs;

impl<'de> DeserializeSeed<'de> for ReadArgs {
    type Value = Args;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Args, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadArgs {
    type Value = Args;

    passes_over_scalars!(Args, Args::default());

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Args, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Args::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Args, A::Error> {
        let mut args = Args::default();
        while let Some(key) = items.next_key::<String>()? {
            let place = match &*key {
                "Device Type" => &mut args.device_type,
                "Device Id" => &mut args.device,
                "Addr" => &mut args.address,
                "Bytes" => &mut args.bytes,
                "Total Allocated" => &mut args.live,
                "Total Reserved" => &mut args.reserved,
                _ => {
                    items.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = items.next_value_seed(ReadScalar)?;
        }
        Ok(args)
    }
}
