//! What the NameNode says by RPC, with Kerberos: its web port may want tickets, or speak TLS alone.

use std::time::{Duration, Instant};

use hayloft_client::FileClient;
use hayloft_wire::proto::hdfs::{AdminState, DatanodeInfo};
use hayloft_wire::proto::namespace::DatanodeReportType;

use super::clients::{clients, told, wait_until};
use super::host::SwapHost;
use super::view::{Heard, IN_SERVICE, LiveNode, NameServiceView, OwnNode, transfer_address};

/// Asks the active NameNode of each name service.
///
/// # Errors
/// In words: no proof for a NameNode, one that refuses, or none that is active.
pub fn name_services(
    host: &SwapHost,
    own: &OwnNode,
    until: Instant,
) -> Result<Vec<NameServiceView>, String> {
    wait_until(until, async {
        let mut views = Vec::new();
        for (name, client) in clients(host).await? {
            let seen = view(&client, own).await;
            views.push(seen.map_err(|why| format!("{name}: {why}"))?);
        }
        Ok(views)
    })
}

async fn view(client: &FileClient, own: &OwnNode) -> Result<NameServiceView, String> {
    // First of all: from here on the active NameNode is known.
    let missing_blocks = client.missing_blocks().await.map_err(told)?;
    let namenode = client.namenode();
    let in_safe_mode = client.is_in_safe_mode().await.map_err(told)?;
    let nodes = async |which| client.datanodes(which).await.map_err(told);
    let live = nodes(DatanodeReportType::Live).await?;
    let dead = nodes(DatanodeReportType::Dead).await?;
    // A standby tells of nodes as well, and does not answer this.
    client.missing_blocks().await.map_err(told)?;
    if client.namenode() != namenode {
        let now = client.namenode();
        return Err(format!(
            "{namenode} became a standby while it was asked, and {now} is active: try again"
        ));
    }
    let is_own =
        |node: &&DatanodeInfo| own.is(Some(&node.id.datanode_uuid), &transfer_address(&node.id));
    let gone = |node: &&DatanodeInfo| node.admin_state() != AdminState::Decommissioned;
    let this = live.iter().find(is_own);
    let others = dead.iter().filter(gone).filter(|node| !is_own(node));
    Ok(NameServiceView {
        address: namenode.to_owned(),
        safe_mode: if in_safe_mode { "on" } else { "" }.to_owned(),
        missing_blocks,
        dead: others.map(|node| transfer_address(&node.id)).collect(),
        node: this.map(|node| live_node(node, namenode)),
    })
}

fn live_node(node: &DatanodeInfo, namenode: &str) -> LiveNode {
    // As Hadoop's pages call them.
    let state = match node.admin_state() {
        AdminState::Normal => IN_SERVICE,
        AdminState::DecommissionInprogress => "Decommission In Progress",
        AdminState::Decommissioned => "Decommissioned",
        AdminState::EnteringMaintenance => "Entering Maintenance",
        AdminState::InMaintenance => "In Maintenance",
    };
    LiveNode {
        name: format!("{}:{}", node.id.host_name, node.id.xfer_port),
        // NameNodes before 3.3.2 do not say it.
        blocks: node.num_blocks.map(u64::from),
        last_contact: None,
        state: state.to_owned(),
        web: None,
        transfer: transfer_address(&node.id),
        namenode: namenode.to_owned(),
        heard: Some(heard(node)),
    }
}

fn heard(node: &DatanodeInfo) -> Heard {
    let heartbeat = node.last_update();
    let report = Some(node.last_block_report_time()).filter(|at| *at > 0);
    let since = report.map(|at| Duration::from_millis(heartbeat.saturating_sub(at)));
    Heard {
        heartbeat,
        since_report: since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayloft_wire::proto::hdfs::DatanodeId;

    #[test]
    fn a_node_is_shown_as_on_the_namenodes_pages() {
        let mut node = DatanodeInfo {
            id: DatanodeId {
                ip_addr: "::1".into(),
                host_name: "node.example".into(),
                xfer_port: 9866,
                ..DatanodeId::default()
            },
            num_blocks: Some(7),
            ..DatanodeInfo::default()
        };
        let shown = live_node(&node, "nn:8020");
        assert_eq!((&*shown.name, shown.blocks), ("node.example:9866", Some(7)));
        assert_eq!(
            (&*shown.transfer, &*shown.state),
            ("[::1]:9866", "In Service")
        );
        node.admin_state = Some(AdminState::InMaintenance.into());
        node.num_blocks = None;
        let shown = live_node(&node, "nn:8020");
        assert_eq!(
            (&*shown.state, shown.blocks),
            ("In Maintenance", None),
            "what an older NameNode does not tell is not 0"
        );
    }
}
