//! The web port: what monitoring agents and people ask a node for.
//!
//! | module | what it answers |
//! |---|---|
//! | `jmx_state_beans` | `/jmx`: beans of what is: space, volumes, NameNodes |
//! | `jmx_count_beans` | beans of what was done: `DataNodeActivity`, RPC |
//! | `jmx_attributes`, `jmx` | a bean; those that fit a name or a pattern |
//! | `percent` | text in URLs |
//! | `periods` | means over the last period |
//! | `prom_state` | `/prom`: what is |
//! | `prom_counts` | `/prom`: what was done, and what it took |
//! | `prom_beans` | `/prom`: the beans under the names of Apache's node |
//! | `records` | beans as the records of Apache's node, for `/prom` and for sinks of metrics |
//! | `prom_text` | Prometheus' text format |
//! | `page` | `/`, and `/live` for its script |
//! | `filters` | who may see which page |
//! | `conf_stacks_loglevel` | `/conf`, `/stacks`, `/logLevel` |
//! | `webhdfs` | `/webhdfs/v1`: bytes of files |
//! | `log_files` | `/logs`: the files that the node logs to |
//! | `scan_report` | `/blockScannerReport` |
//! | `server` | connections and their limits |
//! | `stalled_connections` | which connections are ended |
//! | `tls` | the same over TLS |
//! | `cached` | answers given for a while |
//! | `secret_file` | files with secrets, and their limit |
//!
//! Its threads serve nothing else, so that no request takes one from the data path.

mod cached;
mod conf_stacks_loglevel;
mod filters;
mod jmx;
mod jmx_attributes;
mod jmx_count_beans;
mod jmx_state_beans;
mod log_files;
mod page;
mod percent;
mod periods;
mod prom_beans;
mod prom_counts;
mod prom_state;
mod prom_text;
mod records;
mod scan_report;
mod secret_file;
mod server;
mod stalled_connections;
mod tls;
mod webhdfs;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use hayloft_conf::SharedConfig;
use hayloft_io::disk::DiskStats;
use hayloft_protection::ParityStatus;
use hayloft_rpc::server::RpcStats;
use hayloft_store::{Store, VolumeReport};

use crate::daemonlog;
use crate::identity::Identity;
use crate::namenode::ActorInfo;
use crate::outliers::OutlierReports;
use crate::security::BlockTokens;
use crate::snapshots::SnapshotState;
use crate::xceiver::XceiverStats;
use percent::Plus;

pub use cached::{Cached, Sampled};
pub(crate) use filters::WebFilters;
pub use periods::Periods;
#[cfg(test)]
pub(crate) use records::Metric;
pub(crate) use records::{HOST, Record, records};
pub(crate) use server::{WebPorts, serve};
pub(crate) use tls::{Policy, Tls};

/// What the web port needs of the node.
pub trait WebHost: Send + Sync + 'static {
    /// What the node was told.
    fn config(&self) -> &SharedConfig;
    /// Address that connections to others come from; `None` leaves it to the system.
    fn local_address(&self) -> Option<IpAddr>;
    /// Its replicas.
    fn store(&self) -> &Store;
    /// What there is of parity; `None` when none is configured.
    fn parity(&self) -> Option<ParityStatus>;
    /// How the snapshots stand that it takes; `None` when it takes none.
    fn snapshots(&self) -> Option<SnapshotState>;
    /// Its volumes as of the last seconds: counting replicas looks at each of them.
    fn volumes(&self) -> Arc<Sampled<Vec<VolumeReport>>>;
    /// Its disks as of the last second, and when that was: no disk takes on a transfer while its
    /// histograms are copied.
    fn disks(&self) -> Arc<Sampled<Vec<(String, DiskStats)>>>;
    /// How NameNodes know it.
    fn identity(&self) -> &Identity;
    /// What the data transfer service does.
    fn stats(&self) -> &XceiverStats;
    /// The NameNodes.
    fn actors(&self) -> Vec<ActorInfo>;
    /// What the RPC port does.
    fn rpc_stats(&self) -> &RpcStats;
    /// Block recoveries that this node leads.
    fn recoveries(&self) -> usize;
    /// Whether requests need a block token, as NameNodes have said.
    fn block_tokens(&self) -> &BlockTokens;
    /// What was told of rates last.
    fn periods(&self) -> &Periods;
    /// Peers and volumes that are slower than others.
    fn slow(&self) -> OutlierReports;
    /// How long packets to each peer took, milliseconds; `None` where peers are not measured.
    fn peer_averages(&self) -> Option<Vec<(Arc<str>, f64)>>;
    /// How the plan of the disk balancer stands: JSON; empty when it is off.
    fn disk_balancer_status(&self) -> String;
    /// Since it started.
    fn uptime(&self) -> Duration;
}

type Web = State<Arc<dyn WebHost>>;

/// Headers that Hadoop's web servers send with everything.
const ALWAYS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::PRAGMA, "no-cache"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "SAMEORIGIN"),
    (header::X_XSS_PROTECTION, "1; mode=block"),
];

fn router(host: Arc<dyn WebHost>, filters: Arc<WebFilters>) -> Router {
    let administrators = filters.administrators();
    let insight = Router::new()
        .route("/", readable(get(index)))
        .route("/index.html", readable(get(index)))
        .route("/datanode.html", readable(get(index)))
        .route("/live", readable(get(live)))
        .route("/jmx", readable(get(jmx)))
        .route("/prom", readable(get(prom)))
        .route("/conf", readable(get(conf)))
        .route("/stacks", readable(get(stacks)))
        .route_layer(from_fn_with_state(
            Arc::clone(&administrators),
            filters::to_insight,
        ));
    let log = Router::new()
        .route("/logLevel", readable(get(log_level)))
        .route("/logs", readable(get(log_files::moved)))
        .route("/logs/", readable(get(log_files::listing)))
        .route("/logs/{*name}", readable(get(log_files::file)))
        .route_layer(from_fn_with_state(administrators, filters::to_the_log));
    insight
        .merge(log)
        .route("/blockScannerReport", readable(get(scanner)))
        .fallback(async || StatusCode::NOT_FOUND)
        .with_state(Arc::clone(&host))
        .layer(from_fn_with_state(filters, filters::stand_before))
        .layer(axum::middleware::map_request(within_root))
        .layer(axum::middleware::map_response(with_headers))
        .merge(webhdfs::router(Arc::clone(&host)))
        .layer(from_fn_with_state(host, webhdfs::guard))
        .layer(axum::middleware::map_request(with_a_head_that_fits))
}

/// The server reads ahead, and so takes heads that are up to twice as long.
async fn with_a_head_that_fits(request: Request) -> Result<Request, StatusCode> {
    let headers = request.headers().iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    let asked = request.uri().path_and_query();
    let asked = asked.map_or(0, |asked| asked.as_str().len());
    match headers + asked <= server::HEAD_BYTES_MAX {
        true => Ok(request),
        false => Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
    }
}

/// `hadoop daemonlog` asks for `OPTIONS` first, and does without the page when that is refused.
fn readable(page: MethodRouter<Arc<dyn WebHost>>) -> MethodRouter<Arc<dyn WebHost>> {
    page.options(async || [(header::ALLOW, "GET, HEAD, OPTIONS")])
}

/// No path leads out of the root, as Jetty has it.
async fn within_root(request: Request) -> Result<Request, StatusCode> {
    let path = decoded(request.uri().path());
    let well = path.is_some_and(|path| path.split('/').all(|part| part != ".."));
    if well {
        Ok(request)
    } else {
        Err(StatusCode::BAD_REQUEST)
    }
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in ALWAYS {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn text(kind: &'static str, body: String) -> Response {
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

/// The value of a query's parameter, decoded.
fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&');
    let value = pairs
        .filter_map(|pair| pair.split_once('=').or(Some((pair, ""))))
        .find(|(key, _)| decoded(key).as_deref() == Some(name))?
        .1;
    decoded(value)
}

/// Percent-encoded text; `None` when it is no text.
fn decoded(text: &str) -> Option<String> {
    String::from_utf8(percent::decoded(text, Plus::IsSpace).ok()?).ok()
}

async fn index(State(host): Web) -> Response {
    let page = page::page(&page::live(&*host));
    let policy = [(header::CONTENT_SECURITY_POLICY, page.policy)];
    let body = text("text/html; charset=utf-8", page.html);
    (policy, body).into_response()
}

async fn live(State(host): Web) -> Response {
    let body = page::live(&*host).to_string();
    text("application/json; charset=utf-8", body)
}

async fn jmx(State(host): Web, RawQuery(query): RawQuery) -> Response {
    let (get, pattern) = (
        parameter(query.as_deref(), "get"),
        parameter(query.as_deref(), "qry"),
    );
    let answer = jmx::answer(
        jmx_state_beans::all(&*host),
        get.as_deref(),
        pattern.as_deref(),
    );
    let (status, body) = answer;
    let mut response = text("application/json; charset=utf8", body);
    *response.status_mut() = status;
    let allow = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ];
    for (name, value) in allow {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn prom(State(host): Web) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    text(kind, prom_state::exposition(&*host))
}

async fn conf(State(host): Web, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let json = accepts.is_some_and(|kinds| kinds.contains("application/json"));
    let name = parameter(query.as_deref(), "name").filter(|name| !name.is_empty());
    match conf_stacks_loglevel::conf(&host.config().current(), name.as_deref(), json) {
        Some(body) if json => text("application/json;charset=utf-8", body),
        Some(body) => text("text/xml;charset=utf-8", body),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn log_level(RawQuery(query): RawQuery) -> Response {
    let log = parameter(query.as_deref(), "log");
    let level = parameter(query.as_deref(), "level");
    let page =
        conf_stacks_loglevel::log_level(daemonlog::installed(), log.as_deref(), level.as_deref());
    text("text/html;charset=utf-8", page)
}

async fn scanner(State(host): Web) -> Response {
    text("text/plain;charset=utf-8", scan_report::page(&*host))
}

async fn stacks() -> Response {
    text("text/plain;charset=utf-8", conf_stacks_loglevel::stacks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_and_decoded() {
        let query = Some("qry=Hadoop%3Aservice%3DDataNode%2Cname%3D*&x=a+b&y");
        let of = |name| parameter(query, name);
        assert_eq!(of("qry").as_deref(), Some("Hadoop:service=DataNode,name=*"));
        assert_eq!(of("x").as_deref(), Some("a b"));
        assert_eq!(of("y").as_deref(), Some(""));
        assert_eq!((of("z"), parameter(None, "x")), (None, None));
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
