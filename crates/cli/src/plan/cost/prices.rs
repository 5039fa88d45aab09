//! The file of prices: what hosts and disks cost, what they hold and move, and what is wanted.

use std::num::NonZeroU16;
use std::path::Path;

use hayloft_conf::read_java_file;
use serde::{Deserialize, Deserializer};

use super::super::durability::Keeping;
use crate::error::CliError;

/// The file that `--example` prints.
pub const EXAMPLE: &str = include_str!("../../../../../docs/operate/examples/prices.toml");
/// Most letters of a currency.
const CURRENCY_MAX: usize = 8;

/// A number from `LEAST` to `MOST`, and so neither NaN nor infinite.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct NumberWithin<const LEAST: u32, const MOST: u32>(f64);

impl<const LEAST: u32, const MOST: u32> TryFrom<f64> for NumberWithin<LEAST, MOST> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let within = (f64::from(LEAST)..=f64::from(MOST)).contains(&number);
        let wrong = || format!("write a number from {LEAST} to {MOST}");
        within.then_some(Self(number)).ok_or_else(wrong)
    }
}

impl<const LEAST: u32, const MOST: u32> NumberWithin<LEAST, MOST> {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// What may be nothing: prices, watts, loads.
type Amount = NumberWithin<0, 1_000_000>;
/// What may not: GiB of a disk, MB/s.
type Size = NumberWithin<1, 1_000_000>;

/// All of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// In front of prices.
    #[serde(default, deserialize_with = "currency")]
    pub currency: String,
    /// Of a kilowatt hour, beside hosts and disks.
    pub price_kwh: Option<Amount>,
    /// What every layout must do.
    pub want: WantedCluster,
    /// A host that only computes.
    pub compute: Option<ComputeHost>,
    /// Hosts that compute, with disks of their own.
    pub local: Option<StorageHost>,
    /// Hosts that compute, with disks behind the network.
    pub network: Option<StorageHost>,
    /// Few storage hosts with many disks.
    #[serde(rename = "super")]
    pub super_nodes: Option<StorageHost>,
}

/// What every layout must do.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedCluster {
    /// Hosts that run tasks.
    pub compute_hosts: u16,
    /// TB of files.
    #[serde(default = "nothing")]
    pub usable_tb: Amount,
    /// MB/s that all clients read together.
    #[serde(default = "nothing")]
    pub rate_mbs: NumberWithin<0, 1_000_000_000>,
    /// How full disks may get, per cent.
    #[serde(default = "full")]
    pub fill_percent: NumberWithin<1, 100>,
    /// Millions of requests to disks in an hour, of each compute host.
    #[serde(default = "nothing")]
    pub million_requests_hour: Amount,
    /// GB moved between hosts and disks in an hour, of each compute host.
    #[serde(default = "nothing")]
    pub moved_gb_hour: Amount,
}

/// A host that only computes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeHost {
    /// Of an hour.
    pub price_hour: Amount,
    /// What it draws.
    pub watts: Option<Amount>,
    /// MB/s that its link carries; `None`: no limit.
    pub link_mbs: Option<Size>,
}

/// A host that stores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageHost {
    /// How data is kept.
    #[serde(deserialize_with = "keeping")]
    pub keep: Keeping,
    /// Of an hour.
    pub price_hour: Amount,
    /// Its most disks.
    pub disks: NonZeroU16,
    /// GiB of a disk.
    pub disk_gib: Size,
    /// MB/s that a disk moves.
    pub disk_mbs: Size,
    /// MB/s that the host's link carries; `None`: no limit.
    pub link_mbs: Option<Size>,
    /// Of a GiB of a disk, a month; `None`: the host's price has all its disks in it.
    pub price_gib_month: Option<Amount>,
    /// Of a million requests.
    #[serde(default = "nothing")]
    pub price_million_requests: Amount,
    /// Of a GB that is moved.
    #[serde(default = "nothing")]
    pub price_gb: Amount,
    /// What the host draws, without its disks if they have watts of their own.
    pub watts: Option<Amount>,
    /// What a disk draws.
    #[serde(default = "nothing")]
    pub disk_watts: Amount,
    /// Whether tasks run on it, too; `None`: as the layout has it.
    pub computes: Option<bool>,
}

fn nothing<const MOST: u32>() -> NumberWithin<0, MOST> {
    NumberWithin(0.0)
}

fn full() -> NumberWithin<1, 100> {
    NumberWithin(100.0)
}

fn currency<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.chars().count() > CURRENCY_MAX || text.chars().any(char::is_control) {
        let wrong = format!("write at most {CURRENCY_MAX} letters, such as \"$\"");
        return Err(serde::de::Error::custom(wrong));
    }
    Ok(text)
}

fn keeping<'de, D: Deserializer<'de>>(from: D) -> Result<Keeping, D::Error> {
    Keeping::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl Prices {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    /// With the line that is wrong, and what may be written there.
    pub fn read(path: &Path) -> Result<Self, CliError> {
        let place = path.display().to_string();
        let example = "'hayloft plan cost --example' prints a file to start from";
        let text = read_java_file(path)
            .map_err(|error| CliError::new(format!("cannot read it: {error}"), &place, example))?
            .ok_or_else(|| CliError::new("there is no such file", &place, example))?;
        toml::from_str(&text).map_err(|error| {
            let what = error.to_string().trim_end().to_owned();
            CliError::new(what, &place, example)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of the example with `from` replaced.
    fn refused(from: &str, to: &str) -> String {
        assert!(EXAMPLE.contains(from), "{from}");
        let text = EXAMPLE.replacen(from, to, 1);
        let line = text
            .lines()
            .position(|line| line.contains(to))
            .expect("it is there")
            + 1;
        let error = toml::from_str::<Prices>(&text).expect_err(to).to_string();
        assert!(error.contains(&format!("line {line},")), "{error}");
        error
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line_and_what_to_write() {
        for wrong in ["-1", "nan", "inf", "1e7"] {
            let error = refused("price_hour = 4.60", &format!("price_hour = {wrong}"));
            assert!(
                error.contains("write a number from 0 to 1000000"),
                "{error}"
            );
        }
        let size = refused("disk_gib = 1862", "disk_gib = 0");
        assert!(size.contains("write a number from 1 to 1000000"), "{size}");
        let key = refused("disk_mbs = 100", "disk_speed = 100");
        assert!(
            key.contains("unknown field `disk_speed`, expected one of `keep`"),
            "{key}"
        );
        let keep = refused("keep = \"2x6+1\"", "keep = \"7\"");
        assert!(keep.contains("must be 1 to 6 replicas such as 3"), "{keep}");
        for wrong in ["0", "-2", "2.5", "70000"] {
            refused("disks = 24", &format!("disks = {wrong}"));
        }
        let long = refused("currency = \"$\"", "currency = \"of the realm\"");
        assert!(long.contains("at most 8 letters"), "{long}");
    }

    #[test]
    fn a_key_that_is_missing_is_named() {
        let error = toml::from_str::<Prices>(&EXAMPLE.replace("compute_hosts", "# "));
        let error = error.expect_err("it is missing").to_string();
        assert!(error.contains("missing field `compute_hosts`"), "{error}");
        assert!(error.contains("line "), "{error}");
    }
}
