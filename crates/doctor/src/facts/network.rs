//! What sockets show: names, ports, the way to the NameNodes, and what those say.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use hayloft_cluster::http::{HttpLimits, get_with};
use hayloft_conf::HostPort;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu};
use rustix::net::sockopt::{set_ip_mtu_discover, set_ipv6_mtu_discover};
use serde_json::Value;

use super::ports::{PortFacts, taken};
use crate::seen::Looked;
use crate::subject::{NameNodeSubject, Subject};

/// For a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// For an answer.
const LIMITS: HttpLimits = HttpLimits {
    connect: CONNECT,
    whole: Duration::from_secs(6),
    bytes: 32 << 20,
};
/// Addresses of a name that are tried, at most.
const ADDRESSES_MAX: usize = 8;
/// Other nodes whose data ports are tried, at most.
const PEERS_MAX: usize = 8;
/// Bytes of the header that makes a request larger than a packet, below what a NameNode takes.
const PADDING: usize = 20_000;
/// A datagram that is as large as any packet may be.
const DATAGRAM_MAX: usize = 65_000;

/// The network.
#[derive(Clone, Debug)]
pub struct NetworkFacts {
    /// The name that the node registers under.
    pub host_name: String,
    /// What that name leads to.
    pub addresses: Looked<Vec<IpAddr>>,
    /// Those of them that are addresses of this host.
    pub own: Vec<IpAddr>,
    /// What each address is called.
    pub back: Vec<(IpAddr, Looked<String>)>,
    /// Whether the kernel's clock follows a server, and its largest error in microseconds.
    pub synchronised: Looked<(bool, i64)>,
    /// Connections to the own data ports at the name that is told to others.
    pub data_ports: Vec<(String, Reach)>,
    /// The NameNodes.
    pub namenodes: Vec<NameNodeFacts>,
    /// Data ports of other nodes.
    pub peers: Vec<PeerFacts>,
    /// Ports of the node that are taken.
    pub taken: Vec<PortFacts>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFacts {
    /// Its data port.
    pub at: String,
    /// A connection to it.
    pub reach: Reach,
    /// Where it is, and the largest packet that the way takes, in bytes, where that is known.
    pub way: Option<(IpAddr, u32)>,
}

/// How a connection went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It was made, within so many microseconds, from an address.
    Connected(u64, IpAddr),
    /// The host said that nothing listens there.
    Refused,
    /// There was no answer in time, as of a firewall that drops.
    Silent,
    /// A router or the host itself says no.
    Failed(String),
    /// The name has no address.
    NoAddress(String),
}

/// A NameNode.
#[derive(Clone, Debug)]
pub struct NameNodeFacts {
    /// Its RPC address.
    pub rpc: String,
    /// Connections to it: the quickest of some.
    pub reach: Reach,
    /// Where it is.
    pub address: Looked<SocketAddr>,
    /// Largest packet that the way to it takes, bytes.
    pub mtu: Looked<u32>,
    /// Seconds that this host's clock is ahead of the NameNode's.
    pub ahead_s: Looked<f64>,
    /// Whether a request of many packets was answered as a small one was.
    pub large: Looked<bool>,
    /// `NameNodeInfo`, of one that is active.
    pub info: Looked<Value>,
    /// The class that chooses where replicas go, if the NameNode says so.
    pub chooser: Option<String>,
}

impl NetworkFacts {
    /// Looks; takes some seconds for each NameNode that does not answer.
    #[must_use]
    pub fn of(subject: &Subject, synchronised: Looked<(bool, i64)>) -> Self {
        let uname = rustix::system::uname();
        let system = uname.nodename().to_string_lossy().into_owned();
        let host_name = subject.host_name.clone().unwrap_or(system);
        let addresses = resolve(&host_name);
        let all = addresses.clone().unwrap_or_default();
        let called = |ip: &IpAddr| {
            let name = dns_lookup::lookup_addr(ip).map_err(|error| error.to_string());
            // Without a name it gives the address.
            let name = name.and_then(|name| match name.parse::<IpAddr>() {
                Ok(_) => Err("it has no name".to_owned()),
                Err(_) => Ok(name),
            });
            (*ip, name)
        };
        let namenodes: Vec<NameNodeFacts> = std::thread::scope(|scope| {
            let asked = subject
                .namenodes
                .iter()
                .map(|of| scope.spawn(|| namenode(of)));
            let asked: Vec<_> = asked.collect();
            asked
                .into_iter()
                .filter_map(|asked| asked.join().ok())
                .collect()
        });
        let own = all.iter().copied().filter(is_own);
        Self {
            own: own.collect(),
            back: all.iter().map(called).collect(),
            synchronised,
            data_ports: subject
                .data_ports
                .iter()
                .map(|at| data_port(&host_name, at))
                .collect(),
            peers: peers(&namenodes),
            taken: taken(&subject.ports),
            host_name,
            addresses,
            namenodes,
        }
    }

    /// Whether each NameNode said what it knows, or leaves that to another.
    pub fn all_told(&self) -> bool {
        let waits = |why: &String| ["it is standby", "it is observer"].contains(&why.as_str());
        let mut all = self.namenodes.iter();
        all.all(|of| of.info.as_ref().err().is_none_or(waits))
    }

    /// NameNodes that are active, and what they say.
    pub fn active(&self) -> impl Iterator<Item = (&NameNodeFacts, &Value)> {
        let namenodes = self.namenodes.iter();
        namenodes.filter_map(|of| Some((of, of.info.as_ref().ok()?)))
    }
}

fn resolve(host: &str) -> Looked<Vec<IpAddr>> {
    let found = (host, 0)
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    let mut found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    found.dedup();
    found.truncate(ADDRESSES_MAX);
    Ok(found)
}

/// Whether this host has the address: sockets can be bound to it.
fn is_own(ip: &IpAddr) -> bool {
    UdpSocket::bind((*ip, 0)).is_ok()
}

/// Connects to one of the addresses of a name.
fn reach(at: &HostPort) -> Reach {
    let addresses = match (&*at.host, at.port).to_socket_addrs() {
        Ok(addresses) => addresses.take(ADDRESSES_MAX),
        Err(error) => return Reach::NoAddress(error.to_string()),
    };
    let mut last = Reach::NoAddress("it has no address".to_owned());
    for address in addresses {
        last = reach_at(address);
        if matches!(last, Reach::Connected(..)) {
            break;
        }
    }
    last
}

fn reach_at(address: SocketAddr) -> Reach {
    let began = Instant::now();
    match TcpStream::connect_timeout(&address, CONNECT) {
        Ok(socket) => {
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let from = socket.local_addr().map_or(address.ip(), |from| from.ip());
            Reach::Connected(took, from)
        }
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Reach::Refused,
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Reach::Silent,
            _ => Reach::Failed(error.to_string()),
        },
    }
}

/// Connects to the own port as others would. Where no node listens, this process does meanwhile.
fn data_port(host_name: &str, at: &HostPort) -> (String, Reach) {
    let port = at.port;
    let anywhere = at
        .host
        .parse::<IpAddr>()
        .is_ok_and(|ip| ip.is_unspecified());
    let host = if anywhere {
        host_name.to_owned()
    } else {
        at.host.clone()
    };
    let told = HostPort { host, port };
    // It fails where the node listens, which is as good.
    let listener = TcpListener::bind((&*at.host, port));
    let reached = reach(&told);
    drop(listener);
    (told.to_string(), reached)
}

fn namenode(of: &NameNodeSubject) -> NameNodeFacts {
    let mut reached = reach(&of.rpc);
    // The quickest tells the way; others waited for something else.
    for _ in 0..4 {
        match (&reached, reach(&of.rpc)) {
            (Reach::Connected(best, _), Reach::Connected(took, from)) if took < *best => {
                reached = Reach::Connected(took, from);
            }
            (Reach::Connected(..), _) => {}
            _ => break,
        }
    }
    let no_page = || "the address of its pages is not known".to_owned();
    let web = of.web.as_ref().ok_or_else(no_page).and_then(address_of);
    let small = web.clone().and_then(|web| {
        let page = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus";
        get_with(web, page, "", LIMITS).map_err(|error| error.to_string())
    });
    let ahead_s = small.clone().and_then(|answer| {
        let date = answer.header("date").ok_or("its answer has no date")?;
        ahead(SystemTime::now(), date)
    });
    let large = web.clone().and_then(|web| {
        small.clone()?;
        let more = format!("X-Hayloft-Doctor: {}", "x".repeat(PADDING));
        let asked = get_with(web, "/jmx?qry=none", &more, LIMITS);
        match asked.map_err(|error| error.to_string()) {
            Ok(_) => Ok(true),
            Err(why) if why.contains("no answer within") => Ok(false),
            // An answer of another kind says nothing of packets.
            Err(why) => Err(why),
        }
    });
    let active = small.and_then(|answer| {
        let status = bean(&answer.body)?;
        match status["State"] == "active" {
            true => Ok(()),
            false => Err(format!(
                "it is {}",
                status["State"].as_str().unwrap_or("no NameNode")
            )),
        }
    });
    let info = active.and_then(|()| {
        let page = "/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo";
        let answer = get_with(web.clone()?, page, "", LIMITS).map_err(|e| e.to_string())?;
        bean(&answer.body)
    });
    let chooser = web.clone().ok().filter(|_| info.is_ok()).and_then(|web| {
        let page = "/conf?name=dfs.block.replicator.classname&format=json";
        let answer = get_with(web, page, "", LIMITS).ok()?;
        let answer: Value = serde_json::from_str(&answer.body).ok()?;
        Some(answer["property"]["value"].as_str()?.to_owned())
    });
    let address = address_of(&of.rpc);
    let way = |address: &SocketAddr| way_mtu(*address).map_err(|error| error.to_string());
    NameNodeFacts {
        rpc: of.rpc.to_string(),
        reach: reached,
        mtu: address.as_ref().map_err(Clone::clone).and_then(way),
        address,
        ahead_s,
        large,
        info,
        chooser,
    }
}

fn address_of(at: &HostPort) -> Looked<SocketAddr> {
    let found = (&*at.host, at.port).to_socket_addrs();
    let mut found = found.map_err(|error| format!("{at}: {error}"))?;
    found.next().ok_or_else(|| format!("{at} has no address"))
}

fn bean(page: &str) -> Looked<Value> {
    let mut page: Value = serde_json::from_str(page).map_err(|error| error.to_string())?;
    match page["beans"][0].take() {
        Value::Null => Err("its page has no such bean".to_owned()),
        bean => Ok(bean),
    }
}

/// Seconds that `now` is ahead of a date, which has whole seconds: one that has begun is not.
fn ahead(now: SystemTime, date: &str) -> Looked<f64> {
    let date = httpdate::parse_http_date(date).map_err(|error| error.to_string())?;
    Ok(match now.duration_since(date) {
        Ok(ahead) => (ahead.as_secs_f64() - 1.0).max(0.0),
        Err(behind) => -behind.duration().as_secs_f64(),
    })
}

/// What the way to an address takes in one packet. A datagram that must not be cut is sent, so that
/// routers on the way say what they take.
fn way_mtu(to: SocketAddr) -> std::io::Result<u32> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    if to.is_ipv4() {
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
    } else {
        set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
    }
    socket.connect(to)?;
    let mtu = || match to.is_ipv4() {
        true => ip_mtu(&socket),
        false => ipv6_mtu(&socket),
    };
    let interface = mtu()?;
    // Port 9 of the other host discards, or says that nothing listens: both are as well. Headers
    // have 28 or 48 bytes.
    let room = usize::try_from(interface)
        .unwrap_or(0)
        .clamp(600, DATAGRAM_MAX)
        - 48;
    let aside = SocketAddr::new(to.ip(), 9);
    socket.connect(aside)?;
    for _ in 0..3 {
        let _ = socket.send(&vec![0; room]);
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(mtu()?)
}

/// Data ports of other nodes, as the NameNode tells them to clients.
fn peers(namenodes: &[NameNodeFacts]) -> Vec<PeerFacts> {
    let infos = namenodes.iter().filter_map(|of| of.info.as_ref().ok());
    let mut all: Vec<HostPort> = infos.flat_map(live_ports).collect();
    all.sort();
    all.dedup();
    // Some of many, from all over the list.
    let step = all.len().div_ceil(PEERS_MAX).max(1);
    let some: Vec<&HostPort> = all.iter().step_by(step).collect();
    std::thread::scope(|scope| {
        let asked = some.iter().map(|at| scope.spawn(|| peer(at)));
        let asked: Vec<_> = asked.collect();
        asked
            .into_iter()
            .filter_map(|asked| asked.join().ok())
            .collect()
    })
}

fn peer(at: &HostPort) -> PeerFacts {
    let to = address_of(at).ok();
    PeerFacts {
        at: at.to_string(),
        reach: reach(at),
        way: to.and_then(|to| Some((to.ip(), way_mtu(to).ok()?))),
    }
}

fn live_ports(info: &Value) -> Vec<HostPort> {
    let live = info["LiveNodes"].as_str().unwrap_or("{}");
    let live: Value = serde_json::from_str(live).unwrap_or_default();
    let nodes = live.as_object().into_iter().flat_map(|live| live.values());
    let port = |node: &Value| HostPort::parse_with_default(node["xferaddr"].as_str()?, None).ok();
    nodes.filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_has_whole_seconds() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_millis(s);
        let date = "Thu, 01 Jan 1970 00:01:00 GMT";
        assert_eq!(ahead(at(60_900), date), Ok(0.0));
        assert_eq!(ahead(at(64_000), date), Ok(3.0));
        assert_eq!(ahead(at(50_000), date), Ok(-10.0));
        assert!(ahead(at(0), "yesterday").is_err());
    }

    #[test]
    fn ports_that_answer_and_ports_that_do_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        assert!(matches!(reach_at(address), Reach::Connected(..)));
        drop(listener);
        assert_eq!(reach_at(address), Reach::Refused);
        assert!(way_mtu(address).expect("the loopback has one") >= 1500);
    }
}
