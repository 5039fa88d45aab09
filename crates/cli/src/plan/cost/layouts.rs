//! What a cluster needs in each layout, and what that costs.
//!
//! Section 4.3 of the paper "Efficient Support of Big Data Storage Systems on the Cloud" compares
//! hosts with local disks and with disks that charge for requests. The SuperDataNode is that of
//! "Decoupling Storage and Computation in Hadoop with SuperDataNodes".

use serde::Serialize;

use super::super::durability::Keeping;
use super::super::rules::BoundBy;
use super::prices::{Prices, StorageHost};

/// Hours of a month, as clouds count them.
pub const MONTH_HOURS: f64 = 730.0;
/// Months of a year.
pub const YEAR_MONTHS: f64 = 12.0;
/// Most hosts of a layout, as `plan durability` takes them.
const HOSTS_MAX: f64 = 20_000.0;

/// What decides how many hosts or disks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NeededFor {
    /// The hosts that compute, hosts for the replicas, or the disks that hosts have anyway.
    Count,
    /// Bytes.
    Capacity,
    /// MB/s.
    Rate,
}

/// A layout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayoutCost {
    /// Its table in the file.
    pub layout: &'static str,
    /// How it keeps data.
    pub keep: Keeping,
    /// Hosts that store.
    pub hosts: u32,
    /// What decides their number.
    pub hosts_for: NeededFor,
    /// Hosts beside them that only compute.
    pub compute_hosts: u32,
    /// Disks of all hosts.
    pub disks: u32,
    /// What decides their number.
    pub disks_for: NeededFor,
    /// TB of a disk.
    pub disk_tb: f64,
    /// MB/s that a disk moves.
    pub disk_mbs: f64,
    /// MB/s that the link of a host carries; `None`: no limit.
    pub link_mbs: Option<f64>,
    /// TB of files.
    pub usable_tb: f64,
    /// MB/s that clients read together.
    pub rate_mbs: f64,
    /// What bounds that.
    pub rate_by: BoundBy,
    /// What it draws, if all its hosts say so.
    pub watts: Option<f64>,
    /// Price of an hour.
    pub price_hour: f64,
    /// Of a month of 730 hours.
    pub price_month: f64,
    /// Of twelve.
    pub price_year: f64,
    /// Of a TB of files, a month.
    pub price_tb_month: f64,
    /// The price over that of the first layout; `None` where that costs nothing.
    pub ratio: Option<f64>,
}

/// The costs of all layouts of the file, local disks first.
///
/// # Errors
/// A sentence that says what does not fit, and what to write.
pub fn layouts(prices: &Prices) -> Result<Vec<LayoutCost>, String> {
    let all = [
        ("local", true, &prices.local),
        ("network", true, &prices.network),
        ("super", false, &prices.super_nodes),
    ];
    let mut rows: Vec<LayoutCost> = Vec::new();
    for (name, computes, host) in all {
        let Some(host) = host else { continue };
        let computes = host.computes.unwrap_or(computes);
        let row = layout(prices, name, host, computes);
        let mut row = row.map_err(|wrong| format!("[{name}] {wrong}"))?;
        let first = rows
            .first()
            .map_or(row.price_hour, |first| first.price_hour);
        row.ratio = (first > 0.0).then(|| row.price_hour / first);
        rows.push(row);
    }
    if rows.is_empty() {
        return Err("the file has no layout: write [local], [network] or [super]".to_owned());
    }
    Ok(rows)
}

/// Hosts and disks of a layout.
struct Needed {
    hosts: u32,
    hosts_for: NeededFor,
    disks: u32,
    disks_for: NeededFor,
}

/// Bytes of files for each byte of disks.
fn usable_share(prices: &Prices, host: &StorageHost) -> f64 {
    prices.want.fill_percent.get() / 100.0 / host.keep.raw()
}

fn disk_tb(host: &StorageHost) -> f64 {
    host.disk_gib.get() * f64::from(1 << 30) / 1e12
}

/// The fewest hosts and disks that do what is wanted. All hosts have as many disks.
fn needed(prices: &Prices, host: &StorageHost, computes: bool) -> Result<Needed, String> {
    let want = &prices.want;
    let (most, rate) = (f64::from(host.disks.get()), want.rate_mbs.get());
    let for_capacity = up(want.usable_tb.get() / usable_share(prices, host) / disk_tb(host));
    let for_rate = up(rate / host.disk_mbs.get());
    let link = host.link_mbs.map_or(0.0, |link| up(rate / link.get()));
    let computing = if computes { want.compute_hosts } else { 0 };
    let count = f64::from(host.keep.replicas).max(f64::from(computing));
    let (hosts, hosts_for) = most_of([
        (count, NeededFor::Count),
        (up(for_capacity / most), NeededFor::Capacity),
        (up(for_rate / most).max(link), NeededFor::Rate),
    ]);
    if hosts > HOSTS_MAX {
        let todo = match hosts_for {
            NeededFor::Count => "lower compute_hosts",
            _ => "lower usable_tb or rate_mbs, or raise disks, disk_gib, disk_mbs or link_mbs",
        };
        return Err(format!(
            "needs {hosts:.0} hosts, and at most {HOSTS_MAX:.0} are planned with: {todo}"
        ));
    }
    let units = host.keep.parity.map_or(1, |shape| shape.units());
    let units = u16::try_from(units).unwrap_or(u16::MAX);
    if units > host.disks.get() {
        return Err(format!(
            "keeps parity on {units} disks of a host, and disks is {}: raise it, or lower K+M",
            host.disks
        ));
    }
    let fewest = hosts * f64::from(units);
    let (disks, disks_for) = match host.price_gib_month {
        None => (hosts * most, NeededFor::Count),
        Some(_) => most_of([
            (fewest, NeededFor::Count),
            (for_capacity, NeededFor::Capacity),
            (for_rate, NeededFor::Rate),
        ]),
    };
    Ok(Needed {
        hosts: whole(hosts),
        hosts_for,
        disks: whole(up(disks / hosts) * hosts),
        disks_for,
    })
}

fn layout(
    prices: &Prices,
    layout: &'static str,
    host: &StorageHost,
    computes: bool,
) -> Result<LayoutCost, String> {
    let want = &prices.want;
    let needed = needed(prices, host, computes)?;
    let (hosts, disks) = (f64::from(needed.hosts), f64::from(needed.disks));
    let apart = if computes { 0 } else { want.compute_hosts };
    let beside = beside(prices, apart)?;
    let links = host
        .link_mbs
        .map_or(f64::INFINITY, |link| hosts * link.get());
    let (of_disks, links) = (disks * host.disk_mbs.get(), links.min(beside.links_mbs));
    let watts = host
        .watts
        .zip(beside.watts)
        .map(|(watts, beside)| hosts * watts.get() + disks * host.disk_watts.get() + beside);
    let power = match (prices.price_kwh, watts) {
        (Some(price), Some(watts)) => watts / 1000.0 * price.get(),
        (Some(_), None) => {
            let todo = "has hosts without watts: write them, there and in [compute], or leave \
                        price_kwh out";
            return Err(todo.to_owned());
        }
        (None, _) => 0.0,
    };
    let gib_month = host.price_gib_month.map_or(0.0, |price| price.get());
    let asked = want.million_requests_hour.get() * host.price_million_requests.get()
        + want.moved_gb_hour.get() * host.price_gb.get();
    let price_hour = hosts * host.price_hour.get()
        + beside.price_hour
        + disks * host.disk_gib.get() * gib_month / MONTH_HOURS
        + f64::from(want.compute_hosts) * asked
        + power;
    let usable_tb = disks * disk_tb(host) * usable_share(prices, host);
    Ok(LayoutCost {
        layout,
        keep: host.keep,
        hosts: needed.hosts,
        hosts_for: needed.hosts_for,
        compute_hosts: u32::from(apart),
        disks: needed.disks,
        disks_for: needed.disks_for,
        disk_tb: disk_tb(host),
        disk_mbs: host.disk_mbs.get(),
        link_mbs: host.link_mbs.map(|link| link.get()),
        usable_tb,
        rate_mbs: of_disks.min(links),
        rate_by: if links < of_disks {
            BoundBy::Links
        } else {
            BoundBy::Disks
        },
        watts,
        price_hour,
        price_month: price_hour * MONTH_HOURS,
        price_year: price_hour * MONTH_HOURS * YEAR_MONTHS,
        price_tb_month: price_hour * MONTH_HOURS / usable_tb,
        ratio: None,
    })
}

/// Hosts that only compute.
struct HostsBeside {
    price_hour: f64,
    watts: Option<f64>,
    links_mbs: f64,
}

/// So many of them, which must read as fast as is wanted.
fn beside(prices: &Prices, count: u16) -> Result<HostsBeside, String> {
    if count == 0 {
        return Ok(HostsBeside {
            price_hour: 0.0,
            watts: Some(0.0),
            links_mbs: f64::INFINITY,
        });
    }
    let alone = "stores only: write [compute] with the price_hour of a host that computes";
    let compute = prices.compute.as_ref().ok_or(alone)?;
    let count = f64::from(count);
    let links_mbs = compute
        .link_mbs
        .map_or(f64::INFINITY, |link| count * link.get());
    if links_mbs < prices.want.rate_mbs.get() {
        return Err(format!(
            "is read by hosts whose links carry {links_mbs:.0} MB/s together: lower rate_mbs, or \
             raise compute_hosts, or link_mbs of [compute]"
        ));
    }
    Ok(HostsBeside {
        price_hour: count * compute.price_hour.get(),
        watts: compute.watts.map(|watts| count * watts.get()),
        links_mbs,
    })
}

/// The largest, and of equal ones the first.
fn most_of(needs: [(f64, NeededFor); 3]) -> (f64, NeededFor) {
    let larger = |a: (f64, NeededFor), b: (f64, NeededFor)| if b.0 > a.0 { b } else { a };
    needs.into_iter().fold((0.0, NeededFor::Count), larger)
}

/// The next whole number, but for what rounding added.
fn up(number: f64) -> f64 {
    (number * (1.0 - 1e-12)).ceil()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 20,000 hosts of 65,535 disks"
)]
fn whole(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::super::prices::EXAMPLE;
    use super::*;

    /// The layouts of the example, each text replaced by the next one.
    fn of(changes: &[(&str, &str)]) -> Result<Vec<LayoutCost>, String> {
        let mut text = EXAMPLE.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        layouts(&toml::from_str(&text).expect("it is right"))
    }

    fn is(number: f64, wanted: f64) {
        assert!(
            (number / wanted - 1.0).abs() < 1e-9,
            "{number}, not {wanted}"
        );
    }

    #[test]
    fn section_4_3_of_the_paper() {
        // "$0.10 in addition to the cost of running the instance for 1 hour i.e., $0.24"
        for hosts in [3.0, 4.0, 100.0] {
            let hosts_are = format!("compute_hosts = {hosts}");
            let rows = of(&[("compute_hosts = 4", hosts_are.as_str())]).expect("they are planned");
            is(rows[0].price_hour / hosts, 0.24);
            is(rows[1].price_hour / hosts, 0.34);
            // "29% cheaper than running it on EBS volumes"
            let cheaper = 1.0 - rows[0].price_hour / rows[1].price_hour;
            is((cheaper * 100.0).round(), 29.0);
            assert_eq!(
                (rows[0].ratio, rows[0].hosts_for),
                (Some(1.0), NeededFor::Count)
            );
        }
    }

    #[test]
    fn much_data_is_cheapest_on_few_hosts_of_many_disks() {
        let gib = ("price_gib_month = 0 ", "price_gib_month = 0.10 ");
        let rows = of(&[("usable_tb = 0", "usable_tb = 40"), gib]).expect("they are planned");
        let [local, network, few] = &rows[..] else {
            panic!("three: {rows:?}");
        };
        // 120 TB on hosts of 2 x 0.4252 TB, which come with them.
        assert_eq!(
            (local.hosts, local.disks, local.hosts_for),
            (142, 284, NeededFor::Capacity)
        );
        is(local.price_hour, 142.0 * 0.24);
        // 120 TB / 0.09986 TB are 1,202 volumes; 76 hosts of at most 16 have 16 each.
        assert_eq!((network.hosts, network.disks), (76, 76 * 16));
        assert_eq!(network.disks_for, NeededFor::Capacity);
        is(
            network.price_hour,
            76.0 * 0.24 + 76.0 * 16.0 * 93.0 * 0.10 / 730.0 + 4.0 * 0.10,
        );
        // 40 x 2 x 7/6 TB are 47 disks, and 2 hosts have 48.
        assert_eq!((few.hosts, few.disks, few.compute_hosts), (2, 48, 4));
        is(few.price_hour, 2.0 * 4.60 + 4.0 * 0.24);
        is(few.price_year, few.price_hour * 8760.0);
        assert!(few.usable_tb >= 40.0 && few.price_hour < local.price_hour.min(network.price_hour));
        is(few.price_tb_month, few.price_month / few.usable_tb);
        is(
            few.ratio.expect("local costs"),
            few.price_hour / local.price_hour,
        );
    }

    #[test]
    fn rates_bind_disks_or_links() {
        let rows = of(&[("rate_mbs = 0", "rate_mbs = 4000")]).expect("they are planned");
        // 67 disks of 60 MB/s; 50 links of 80 MB/s; 4 links of 1,000 MB/s.
        let hosts: Vec<_> = rows.iter().map(|row| (row.hosts, row.hosts_for)).collect();
        assert_eq!(hosts, [34, 50, 4].map(|hosts| (hosts, NeededFor::Rate)));
        assert_eq!(rows[0].rate_by, BoundBy::Disks);
        assert_eq!(rows[2].rate_by, BoundBy::Links);
        assert!(rows.iter().all(|row| row.rate_mbs >= 4000.0), "{rows:?}");
        // 134 disks of 30 MB/s are dealt out evenly.
        assert_eq!((rows[1].disks, rows[1].disks_for), (150, NeededFor::Rate));
        // Readers' links: 4 hosts.
        let link = (
            "# link_mbs = 80                # what its",
            "link_mbs = 80 #",
        );
        let error = of(&[("rate_mbs = 0", "rate_mbs = 4000"), link]).expect_err("320 MB/s");
        assert!(
            error.starts_with("[super] is read by hosts whose links carry 320"),
            "{error}"
        );
    }

    /// A layout of four hosts that draw 200 W, and 10 W for each of two disks.
    const DRAWS: &str = "[want]\ncompute_hosts = 4\n[local]\nkeep = '3'\nprice_hour = 1\n\
        disks = 2\ndisk_gib = 1000\ndisk_mbs = 100\nwatts = 200\ndisk_watts = 10\n";

    fn read(text: &str) -> Result<Vec<LayoutCost>, String> {
        layouts(&toml::from_str(text).expect("it is right"))
    }

    #[test]
    fn power_is_paid_where_it_has_a_price() {
        let free = read(DRAWS).expect("it is planned").remove(0);
        is(free.watts.expect("told"), 880.0);
        is(free.price_hour, 4.0);
        let paid = read(&format!("price_kwh = 0.5\n{DRAWS}"))
            .expect("it is planned")
            .remove(0);
        is(paid.price_hour, 4.44);
        let untold = DRAWS.replace("watts = 200\n", "");
        assert_eq!(read(&untold).expect("it is planned")[0].watts, None);
        let error = read(&format!("price_kwh = 0.5\n{untold}")).expect_err("no watts");
        assert!(
            error.starts_with("[local] has hosts without watts: write them"),
            "{error}"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_in_words() {
        let many = of(&[("usable_tb = 0", "usable_tb = 1e6")]).expect_err("too many");
        assert!(many.starts_with("[local] needs 35"), "{many}");
        assert!(many.contains("lower usable_tb"), "{many}");
        let many = of(&[("compute_hosts = 4", "compute_hosts = 20001")]).expect_err("too many");
        assert!(
            many.ends_with("planned with: lower compute_hosts"),
            "{many}"
        );
        let few = of(&[("disks = 24", "disks = 6")]).expect_err("6+1 needs 7");
        assert!(
            few.starts_with("[super] keeps parity on 7 disks of a host"),
            "{few}"
        );
        let alone = DRAWS.replace("[local]", "[super]");
        let error = read(&alone).expect_err("hosts that only store");
        assert!(
            error.starts_with("[super] stores only: write [compute]"),
            "{error}"
        );
        let none = read("[want]\ncompute_hosts = 4\n").expect_err("no layout");
        assert!(
            none.contains("write [local], [network] or [super]"),
            "{none}"
        );
    }
}
