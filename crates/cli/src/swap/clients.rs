//! Clients of the host's name services: as who has a ticket or the node itself with Kerberos, else
//! as the user who runs the node.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hayloft_client::{
    ClientSettings, FileClient, FileError, FileTransfer, FileUser, NameNodeGroup, StripeRoom,
    Turns, login,
};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::host::SwapHost;

/// For each answer of a NameNode. One that hangs leaves time to ask the other.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);

/// A client of each name service, with the service's name. It connects when it is first used. All
/// of a command ask as the same: a ticket that ends meanwhile does not change who asks.
///
/// # Errors
/// In words: the configuration, or no proof for the NameNodes.
pub async fn clients(host: &SwapHost) -> Result<Vec<(String, FileClient)>, String> {
    let services = hayloft_conf::namenodes(&host.config).map_err(|error| error.to_string())?;
    let proof = login::command_or_node_to_namenodes(&host.config);
    let proof = host.proof.get_or_try_init(|| proof).await?;
    let settings = ClientSettings::new(&host.config, None).proving(proof.clone());
    let settings = Arc::new(settings.answered_within(ANSWERED_WITHIN));
    let user = std::env::var("HADOOP_USER_NAME")
        .ok()
        .filter(|user| !user.is_empty());
    let caller = FileUser {
        user: user.unwrap_or_else(|| host.user.clone()),
        ..FileUser::default()
    };
    let client = |service: hayloft_conf::NameService| {
        let addresses = service.namenodes.iter().map(|of| of.rpc.to_string());
        let addresses: Vec<_> = addresses.collect();
        let name = service.id.unwrap_or_else(|| addresses.join(", "));
        let transfer = FileTransfer::new(CancellationToken::new());
        let client = FileClient::new(
            &NameNodeGroup::new(addresses),
            Arc::clone(&settings),
            caller.clone(),
            StripeRoom::new(Arc::new(Turns::new(1)), transfer),
        );
        (name, client)
    };
    Ok(services.into_iter().map(client).collect())
}

/// What failed, in words: of a NameNode the first line, which has no stack trace behind it.
pub fn told(error: FileError) -> String {
    let denied = error.java_class().ends_with(".AccessControlException");
    let said = error.message();
    let said = said.lines().next().unwrap_or_default();
    match denied {
        true => format!(
            "{said}: run this as a superuser of HDFS (kinit where there is Kerberos, else \
             HADOOP_USER_NAME)"
        ),
        false => said.to_owned(),
    }
}

/// Waits for it. One runtime serves the whole command: logins are shared within it. It has no
/// thread of its own: one that still closed connections would use Kerberos' library while the
/// process ends, which the library does not survive.
///
/// # Errors
/// Those of `work`, or no runtime.
pub fn wait_for<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let make = || Builder::new_current_thread().enable_all().build();
    match RUNTIME.get_or_init(make) {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(error.to_string()),
    }
}

/// As [`wait_for`], until then at the latest.
///
/// # Errors
/// Those of `work`, or no end of it.
pub fn wait_until<T>(
    until: Instant,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    wait_for(async {
        let done = tokio::time::timeout_at(until.into(), work).await;
        done.unwrap_or_else(|_| Err("no answer within the time that was left".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_without_an_answer_ends_when_its_time_does() {
        let began = Instant::now();
        let until = began + Duration::from_millis(200);
        let silent = wait_until(until, std::future::pending::<Result<(), String>>());
        assert!(silent.expect_err("no answer").contains("no answer within"));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(
            wait_until(until, async { Ok(7) }),
            Ok(7),
            "one that is there counts"
        );
    }
}
