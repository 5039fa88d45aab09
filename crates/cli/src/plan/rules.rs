//! How many disks links feed and how many workers they serve: whole numbers in, whole numbers out.
//!
//! Section 2.4 of the paper "Decoupling Storage and Computation in Hadoop with SuperDataNodes":
//! a link of 1 Gb/s carries about 100 MB/s, which is what ⌊100/M⌋ disks of M MB/s move; N such
//! links carry N times as many; a link of 10 Gb/s carries what twenty disks of 50 MB/s move.
//!
//! Section 3: 10 to 20 workers share a SuperDataNode (the page prints the ratio upside down), as
//! many as the disks that the network can stand for. Twenty such disks serve 20 workers that keep
//! one disk busy each, or 10 that keep two busy, as the paper's own workers did.

use serde::Serialize;

/// Bits a second in a gigabit a second.
const GIGABIT: u64 = 1_000_000_000;
/// Fastest link that is believed, bits a second.
const LINK_MAX: u64 = 100_000 * GIGABIT;
/// Most links of one kind.
const COUNT_MAX: u64 = 1024;

/// Some equal links of a SuperDataNode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Links {
    /// How many.
    pub count: u64,
    /// What each carries, bits a second.
    pub bits_s: u64,
}

impl Links {
    /// What is planned for when no links are named: the paper's two, and what is sold today.
    pub const USUAL: [Self; 6] = [
        Self::gigabits(1, 1),
        Self::gigabits(4, 1),
        Self::gigabits(1, 10),
        Self::gigabits(2, 10),
        Self::gigabits(2, 25),
        Self::gigabits(1, 100),
    ];

    /// `count` links of `gigabits` Gb/s.
    #[must_use]
    pub const fn gigabits(count: u64, gigabits: u64) -> Self {
        Self {
            count,
            bits_s: gigabits * GIGABIT,
        }
    }

    /// Reads `4x1Gb`, `10Gb` or `100Mb`.
    ///
    /// # Errors
    /// What is accepted, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "must be a link such as 10Gb, or several such as 4x1Gb".to_owned();
        let (count, rate) = text.split_once(['x', 'X']).unwrap_or(("1", text));
        let count: u64 = count.trim().parse().map_err(|_| wrong())?;
        let rate = rate.trim().to_ascii_lowercase();
        let rate = rate.strip_suffix("/s").unwrap_or(&rate);
        let rate = rate.strip_suffix("it").unwrap_or(rate);
        let (digits, unit) = if let Some(digits) = rate.strip_suffix("gb") {
            (digits, GIGABIT)
        } else {
            (rate.strip_suffix("mb").ok_or_else(wrong)?, 1_000_000)
        };
        let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
        let bits_s = number.saturating_mul(unit);
        if !(1..=COUNT_MAX).contains(&count) || !(1..=LINK_MAX).contains(&bits_s) {
            return Err(format!(
                "must be 1 to {COUNT_MAX} links of at most {} Gb/s",
                LINK_MAX / GIGABIT
            ));
        }
        Ok(Self { count, bits_s })
    }

    /// As typed.
    #[must_use]
    pub fn name(&self) -> String {
        let rate = if self.bits_s.is_multiple_of(GIGABIT) {
            format!("{}Gb", self.bits_s / GIGABIT)
        } else {
            format!("{}Mb", self.bits_s / 1_000_000)
        };
        if self.count == 1 {
            rate
        } else {
            format!("{}x{rate}", self.count)
        }
    }
}

/// What the rules assume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Assumptions {
    /// Share of a link's bits that carry data, per cent; the paper's 100 MB/s of 1 Gb/s are 80.
    pub link_use_percent: u64,
    /// Disks that a worker keeps busy, at least and at most.
    pub disks_per_worker: (u64, u64),
    /// Workers served for each that the bandwidth is enough for; more than 1 for archives.
    pub oversubscription: u64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            link_use_percent: 80,
            disks_per_worker: (1, 2),
            oversubscription: 1,
        }
    }
}

/// What bounds a SuperDataNode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundBy {
    /// Its links: more disks add room, not speed.
    Links,
    /// Its disks: more links add nothing.
    Disks,
}

/// What follows for one choice of links.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkPlan {
    /// The links.
    pub links: Links,
    /// Bytes a second that they carry together.
    pub links_bytes_s: u64,
    /// Whole disks that one link stands for.
    pub disks_per_link: u64,
    /// Whole disks that the links stand for when each feeds disks of its own: the paper's rule.
    pub disks: u64,
    /// The same when every link reaches every disk, as with virtual nodes over all disks.
    pub disks_pooled: u64,
    /// Fewest and most workers that the SuperDataNode serves at their full speed.
    pub workers: (u64, u64),
    /// What bounds it.
    pub bound_by: BoundBy,
    /// Bytes a second that reach the workers.
    pub served_bytes_s: u64,
    /// Such links that all disks need.
    pub links_for_all_disks: u64,
}

/// Applies the rules to `disks` disks of `disk_bytes_s` (at least 1) bytes a second.
#[must_use]
pub fn plan(links: Links, disks: u64, disk_bytes_s: u64, assume: &Assumptions) -> LinkPlan {
    let disk_bytes_s = disk_bytes_s.max(1);
    let link_bytes_s = links.bits_s / 8 / 100 * assume.link_use_percent;
    let links_bytes_s = link_bytes_s.saturating_mul(links.count);
    let disks_bytes_s = disk_bytes_s.saturating_mul(disks);
    let disks_per_link = link_bytes_s / disk_bytes_s;
    let served_bytes_s = links_bytes_s.min(disks_bytes_s);
    let (busy_least, busy_most) = assume.disks_per_worker;
    let workers = |busy: u64| {
        let each = disk_bytes_s.saturating_mul(busy.max(1));
        served_bytes_s.saturating_mul(assume.oversubscription) / each
    };
    LinkPlan {
        links,
        links_bytes_s,
        disks_per_link,
        disks: disks_per_link * links.count,
        disks_pooled: links_bytes_s / disk_bytes_s,
        workers: (workers(busy_most), workers(busy_least)),
        bound_by: if links_bytes_s < disks_bytes_s {
            BoundBy::Links
        } else {
            BoundBy::Disks
        },
        served_bytes_s,
        links_for_all_disks: disks_bytes_s.div_ceil(link_bytes_s.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MB: u64 = 1_000_000;
    /// The paper's machine, of which it used 20 disks.
    const DISKS: u64 = 48;

    fn paper(links: &str, disk_mb_s: u64) -> LinkPlan {
        let links = Links::parse(links).expect("links");
        plan(links, DISKS, disk_mb_s * MB, &Assumptions::default())
    }

    #[test]
    fn section_2_4_of_the_paper() {
        // "A single gigabit network link (with approximately 100 MB/sec capability) can support the
        // equivalent of floor(100/M) local disks"
        for disk in 1..=120 {
            let one = paper("1Gb", disk);
            assert_eq!(one.links_bytes_s, 100 * MB);
            assert_eq!(one.disks_per_link, 100 / disk, "M = {disk}");
            // "a SuperDataNode with N gigabit links can support the equivalent of N times that"
            for n in [2, 4, 10] {
                let several = paper(&format!("{n}x1Gb"), disk);
                assert_eq!(several.disks, n * (100 / disk), "N = {n}, M = {disk}");
                assert!(several.disks_pooled >= several.disks);
            }
        }
        // "if the SuperDataNode has a 10 Gbit/sec interface, it will be limited to approximately
        // twenty local disks worth of bandwidth if each disk supports 50 MB/sec"
        assert_eq!(paper("10Gb", 50).disks, 20);
        // Figure 1: four links of 1 Gb/s.
        assert_eq!(paper("4x1Gb", 50).disks, 8);
    }

    #[test]
    fn section_3_of_the_paper() {
        // "a 10-to-1 or 20-to-1 ratio ... seems ideal", for the twenty disks' worth of section 2.4.
        assert_eq!(paper("10Gb", 50).workers, (10, 20));
        // "In the case of archival Hadoop, it may be desirable to oversubscribe that ratio"
        let archive = Assumptions {
            oversubscription: 4,
            ..Assumptions::default()
        };
        let plan = plan(Links::gigabits(1, 10), DISKS, 50 * MB, &archive);
        assert_eq!(plan.workers, (40, 80));
    }

    #[test]
    fn few_disks_bound_the_node_and_many_its_links() {
        let assume = Assumptions::default();
        let of = |disks| plan(Links::gigabits(1, 10), disks, 200 * MB, &assume);
        assert_eq!(
            (of(4).bound_by, of(4).served_bytes_s),
            (BoundBy::Disks, 800 * MB)
        );
        assert_eq!((of(4).workers, of(4).links_for_all_disks), ((2, 4), 1));
        assert_eq!(of(6).bound_by, BoundBy::Links);
        assert_eq!((of(6).served_bytes_s, of(6).workers), (1000 * MB, (2, 5)));
        assert_eq!(of(12).links_for_all_disks, 3);
        // A disk that is faster than a link: no whole disk, and still a rate.
        let slow = plan(Links::gigabits(4, 1), 12, 250 * MB, &assume);
        assert_eq!(
            (slow.disks_per_link, slow.disks, slow.disks_pooled),
            (0, 0, 1)
        );
        assert_eq!(slow.served_bytes_s, 400 * MB);
    }

    #[test]
    fn links_are_read_and_shown() {
        for (text, count, bits_s, shown) in [
            ("10Gb", 1, 10 * GIGABIT, "10Gb"),
            ("4x1Gb", 4, GIGABIT, "4x1Gb"),
            ("2 x 25 Gbit/s", 2, 25 * GIGABIT, "2x25Gb"),
            ("100mb", 1, 100 * MB, "100Mb"),
        ] {
            let links = Links::parse(text).expect(text);
            assert_eq!((links.count, links.bits_s), (count, bits_s), "{text}");
            assert_eq!(links.name(), shown);
        }
        for wrong in [
            "", "10", "x10Gb", "0x1Gb", "0Gb", "4x", "1.5Gb", "10GB/h", "2000x1Gb",
        ] {
            assert!(Links::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_numbers_give_a_plan(
            count in 1..=COUNT_MAX, bits_s in 1..=LINK_MAX, disks in 1..=4096_u64,
            disk in 1..=1_000_000_000_000_u64, busy in 1..=64_u64, times in 1..=100_u64,
        ) {
            let assume = Assumptions {
                link_use_percent: 100,
                disks_per_worker: (1, busy),
                oversubscription: times,
            };
            let plan = plan(Links { count, bits_s }, disks, disk, &assume);
            prop_assert!(plan.disks <= plan.disks_pooled);
            prop_assert!(plan.workers.0 <= plan.workers.1);
            prop_assert!(plan.served_bytes_s <= plan.links_bytes_s);
        }
    }
}
