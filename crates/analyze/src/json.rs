//! How values of the event vocabulary are written in JSON, and read back.
//!
//! Addresses and streams are 64-bit patterns and become strings such as `"0x7f0000000c00"`, because
//! numbers above 2^53 do not survive JavaScript. Kinds are written by name.

/// Numbers as hexadecimal text.
pub(crate) mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:#x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.ok_or_else(|| D::Error::custom(format_args!("'{text}' is not a hexadecimal number")))
    }
}

/// A kind by its name.
pub(crate) mod kind {
    use floodmark_event::Kind;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn parse<E: serde::de::Error>(name: &str) -> Result<Kind, E> {
        Kind::from_name(name).ok_or_else(|| E::custom(format_args!("'{name}' is not a kind of memory")))
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
    pub(crate) fn serialize<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }
}

/// Kinds by their names.
pub(crate) mod kinds {
    use floodmark_event::Kind;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(kinds: &[Kind], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(kinds.iter().map(|kind| kind.name()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Kind>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().map(|name| super::kind::parse(name)).collect()
    }
}
