//! What of a profile is missing in a directory, other than there, or equal.

use std::fmt::Write as _;

use hayloft_conf::shown;
use serde::Serialize;

use super::compute_properties::{CAPACITY, ComputeProperty, ValueForm, YARN};
use super::what_is_set::{HeldValue, JobsConf};

/// What a directory says of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileVerdict {
    /// It is what the profile sets, be it by default.
    Equal,
    /// Nothing sets it, and the default is another.
    Missing,
    /// It is set otherwise.
    Other,
    /// That cannot be said here.
    Unjudged,
}

/// A property beside what a directory says of it.
#[derive(Debug, Serialize)]
pub struct JudgedProperty {
    #[serde(flatten)]
    property: ComputeProperty,
    /// What the directory says.
    pub verdict: ProfileVerdict,
    /// The value there.
    now: Option<String>,
    /// File and line that set it.
    place: Option<String>,
    /// No job sets it otherwise.
    #[serde(rename = "final")]
    is_final: bool,
    /// Why it is not judged.
    why: Option<String>,
}

/// Compares one property.
pub fn judge(property: &ComputeProperty, conf: &JobsConf) -> JudgedProperty {
    let ComputeProperty { file, name, .. } = *property;
    let by = |name: Option<&str>| name.and_then(|name| conf.held(file, name));
    let (held, old) = (by(Some(name)), by(property.old));
    let twice = match (&held, &old) {
        (Some(_), Some(old)) => Some(format!("its old name is set too, by {}", old.place)),
        _ => None,
    };
    let held = held.or(old).or_else(|| by(property.base));
    let (verdict, why) = match twice.or_else(|| other_scheduler(file, conf)) {
        Some(why) => (ProfileVerdict::Unjudged, Some(why)),
        None => match verdict(property, held.as_ref(), conf) {
            Ok(verdict) => (verdict, None),
            Err(why) => (ProfileVerdict::Unjudged, Some(why)),
        },
    };
    let text = held.as_ref().and_then(|held| held.text.as_ref().ok());
    JudgedProperty {
        property: *property,
        verdict,
        now: text.map(|text| shown(text.trim())),
        is_final: held.as_ref().is_some_and(|held| held.is_final),
        place: held.map(|held| held.place),
        why,
    }
}

fn verdict(
    property: &ComputeProperty,
    held: Option<&HeldValue>,
    conf: &JobsConf,
) -> Result<ProfileVerdict, String> {
    let wanted = read(property.form, property.value);
    let Some(held) = held else {
        let default = property.default.and_then(|text| read(property.form, text));
        return match conf.has(property.file) {
            false => Err(format!("{} has no {}", conf.dir().display(), property.file)),
            true if wanted == default => Ok(ProfileVerdict::Equal),
            true => Ok(ProfileVerdict::Missing),
        };
    };
    let text = held.text.as_ref().map_err(Clone::clone)?.trim();
    if text.contains("${") {
        return Err(format!("{} refers to what is not known here", held.place));
    }
    match read(property.form, text) {
        None => Err(format!("{} has no value of its form", held.place)),
        now if now == wanted => Ok(ProfileVerdict::Equal),
        _ => Ok(ProfileVerdict::Other),
    }
}

/// Why the keys of the CapacityScheduler count for nothing, if another one is set.
fn other_scheduler(file: &str, conf: &JobsConf) -> Option<String> {
    let held = conf.held(YARN, "yarn.resourcemanager.scheduler.class");
    let held = held.filter(|_| file == CAPACITY)?;
    let ours = held
        .text
        .is_ok_and(|name| name.contains("CapacityScheduler"));
    (!ours).then(|| format!("{} names another scheduler", held.place))
}

/// A value as its reader takes it, so that `0` and `0s` are one; flags are 0 and 1.
fn read(form: ValueForm, text: &str) -> Option<i64> {
    match form {
        ValueForm::Number => text.parse().ok(),
        ValueForm::Bytes => scaled(text, |unit| {
            let unit = unit.strip_suffix('b').unwrap_or(unit);
            let power = ["", "k", "m", "g", "t", "p"]
                .iter()
                .position(|of| *of == unit)?;
            Some(1_i64 << (10 * power))
        }),
        ValueForm::Time => scaled(text, milliseconds),
        ValueForm::SpacedTime => scaled(text, |unit| milliseconds(unit.trim_start())),
        ValueForm::Flag => {
            let flag = text.to_ascii_lowercase().parse::<bool>();
            flag.ok().map(i64::from)
        }
    }
}

fn milliseconds(unit: &str) -> Option<i64> {
    match unit {
        "" | "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    }
}

/// Digits and a unit.
fn scaled(text: &str, factor: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: i64 = digits.parse().ok()?;
    number.checked_mul(factor(&unit.to_ascii_lowercase())?)
}

/// A line a property, and the reason where there is something to do.
pub fn text(judged: &[JudgedProperty]) -> String {
    let mut text = String::new();
    for one in judged {
        let ComputeProperty {
            file, name, value, ..
        } = one.property;
        let now = one.now.as_deref().unwrap_or_default();
        let place = one.place.as_deref().unwrap_or("default");
        let last = if one.is_final { ", final" } else { "" };
        let line = match one.verdict {
            ProfileVerdict::Equal => format!("equal     {name} = {value} ({place}{last})"),
            ProfileVerdict::Missing => format!("missing   {name} = {value}, for {file}"),
            ProfileVerdict::Other => {
                format!("other     {name} = {value}, not {now} ({place}{last})")
            }
            ProfileVerdict::Unjudged => {
                let why = one.why.as_deref().unwrap_or_default();
                format!("unjudged  {name} = {value}: {why}")
            }
        };
        let _ = writeln!(text, "{line}");
        if matches!(one.verdict, ProfileVerdict::Missing | ProfileVerdict::Other) {
            let _ = writeln!(text, "          {}", one.property.reason);
        }
    }
    text
}
