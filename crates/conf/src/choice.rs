//! Values that are one of a few names: a misspelt one is named at start, with the file
//! and line.

use hayloft_io::Media;
use hayloft_io::{ENGINE_AUTO, ENGINE_NAMES, ENGINE_REMOVED, PLUGIN_PREFIX, plugin_parts};
use hayloft_parity::{ParityDisks, ParityShape};

use super::value::{Unit, Value};

/// An I/O engine by name: one of [`ENGINE_NAMES`], [`ENGINE_AUTO`], or a plug-in's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineName(pub String);

impl Value for EngineName {
    const KIND: &'static str = "engine";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        if text == ENGINE_AUTO || ENGINE_NAMES.contains(&text) {
            return Ok(Self(text.to_owned()));
        }
        // Whether it can be used, the volume says when it is opened.
        if plugin_parts(text).is_some_and(|(path, _)| path.is_absolute()) {
            return Ok(Self(text.to_owned()));
        }
        if text == ENGINE_REMOVED {
            return Err(format!(
                "direct, which does all that {text} did: there is no {text} any more"
            ));
        }
        let names = ENGINE_NAMES.join(", ");
        Err(format!(
            "{ENGINE_AUTO}, {names} or {PLUGIN_PREFIX}/path/of/engine.so"
        ))
    }
}

/// `None`: what the volume's calibration or the kernel says.
impl Value for Option<Media> {
    const KIND: &'static str = "auto, rotating or flash";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(None),
            "rotating" => Ok(Some(Media::Rotating)),
            "flash" => Ok(Some(Media::Flash)),
            _ => Err("auto, rotating or flash".into()),
        }
    }
}

/// `None`: no parity.
impl Value for Option<ParityShape> {
    const KIND: &'static str = "K+M or none";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        let wrong = |_| "none, or K+M such as 6+1: at least 1+1, at most 64 together and 8 of M";
        ParityShape::from_key(text).map_err(|e| wrong(e).into())
    }
}

impl Value for ParityDisks {
    const KIND: &'static str = "devices or directories";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "devices" => Ok(Self::Devices),
            "directories" => Ok(Self::Directories),
            _ => Err("devices or directories".into()),
        }
    }
}

/// The function that makes passwords of tokens' identifiers, by Java's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyGenerator {
    /// Hadoop's default.
    HmacSha1,
    /// With SHA-256.
    HmacSha256,
    /// With SHA-384.
    HmacSha384,
    /// With SHA-512.
    HmacSha512,
}

impl Value for KeyGenerator {
    const KIND: &'static str = "algorithm";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "hmacsha1" => Ok(Self::HmacSha1),
            "hmacsha256" => Ok(Self::HmacSha256),
            "hmacsha384" => Ok(Self::HmacSha384),
            "hmacsha512" => Ok(Self::HmacSha512),
            _ => Err("HmacSHA1, HmacSHA256, HmacSHA384 or HmacSHA512".into()),
        }
    }
}

/// A policy for the volume of a new replica, by the name of Apache's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoosingPolicy {
    /// One volume after the other.
    RoundRobin,
    /// Rather those with more free space.
    AvailableSpace,
}

impl Value for ChoosingPolicy {
    const KIND: &'static str = "class";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match simple_name(text) {
            "RoundRobinVolumeChoosingPolicy" => Ok(Self::RoundRobin),
            "AvailableSpaceVolumeChoosingPolicy" => Ok(Self::AvailableSpace),
            _ => Err("RoundRobinVolumeChoosingPolicy or AvailableSpaceVolumeChoosingPolicy".into()),
        }
    }
}

/// How bytes and per cent of reserved space combine, by the name of Apache's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calculator {
    /// Bytes only.
    Absolute,
    /// Per cent only.
    Percentage,
    /// The larger of the two.
    Conservative,
    /// The smaller of the two.
    Aggressive,
}

impl Value for Calculator {
    const KIND: &'static str = "class";
    fn parse(text: &str, _: Unit) -> Result<Self, String> {
        match simple_name(text).strip_prefix("ReservedSpaceCalculator") {
            Some("Absolute") => Ok(Self::Absolute),
            Some("Percentage") => Ok(Self::Percentage),
            Some("Conservative") => Ok(Self::Conservative),
            Some("Aggressive") => Ok(Self::Aggressive),
            _ => Err(
                "ReservedSpaceCalculatorAbsolute, ...Percentage, ...Conservative or ...Aggressive"
                    .into(),
            ),
        }
    }
}

/// A limit in bytes that 0 leaves to the node; anything else is at least `MIN` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOrAuto<const MIN: u64>(pub Option<u64>);

impl<const MIN: u64> Value for LimitOrAuto<MIN> {
    const KIND: &'static str = "number";
    fn parse(text: &str, unit: Unit) -> Result<Self, String> {
        match u64::parse(text, unit)? {
            0 => Ok(Self(None)),
            bytes if bytes >= MIN => Ok(Self(Some(bytes))),
            _ => Err(format!("0, or at least {MIN}")),
        }
    }
}

/// The class name without package and enclosing class.
fn simple_name(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_a_choice_and_others_are_named() {
        for name in ENGINE_NAMES.iter().chain([&ENGINE_AUTO]) {
            let engine = EngineName::parse(name, Unit::None);
            assert_eq!(engine, Ok(EngineName((*name).to_owned())));
        }
        let error = EngineName::parse("drect", Unit::None).expect_err("unknown");
        assert!(
            error.contains("direct") && error.contains("auto"),
            "{error}"
        );
        let error = EngineName::parse("uring", Unit::None).expect_err("removed");
        assert!(error.starts_with("direct, which"), "{error}");
    }

    #[test]
    fn classes_are_known_by_their_simple_names() {
        let package = "org.apache.hadoop.hdfs.server.datanode.fsdataset";
        let calculator = format!("{package}.impl.ReservedSpaceCalculator$ReservedSpaceCalculator");
        for (name, wanted) in [
            ("Absolute", Calculator::Absolute),
            ("Percentage", Calculator::Percentage),
            ("Conservative", Calculator::Conservative),
            ("Aggressive", Calculator::Aggressive),
        ] {
            let text = format!("{calculator}{name}");
            assert_eq!(Calculator::parse(&text, Unit::None), Ok(wanted));
        }
        assert!(Calculator::parse("com.example.Mine", Unit::None).is_err());
        let policy = format!("{package}.AvailableSpaceVolumeChoosingPolicy");
        let policy = ChoosingPolicy::parse(&policy, Unit::None);
        assert_eq!(policy, Ok(ChoosingPolicy::AvailableSpace));
        assert!(ChoosingPolicy::parse("com.example.Mine", Unit::None).is_err());
    }
}
