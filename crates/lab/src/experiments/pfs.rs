//! `pfs://` on MooseFS against HDFS on the same disks in the same run: Figures 3 to 11 of the
//! HDFS/PVFS paper, and what is left when servers are lost.
//!
//! [`moosefs`] starts MooseFS on a testbed, [`session`] has clients write and read; [`reads`],
//! [`layouts`], [`loss`] and [`jobs`] are the parts.

mod jobs;
mod layouts;
mod loss;
mod moosefs;
mod reads;
mod session;
mod wants;

use hayloft_bench::fair::stock::Stock;
use hayloft_testkit::error::Result;

use super::testbeds::{scaled, slow_disks};
use crate::runner::options::ExperimentOptions;
use crate::runner::table::Shown;
use crate::runner::{Experiment, Run};

/// The experiment.
pub const PFS: Experiment = Experiment {
    name: "pfs",
    question: "Hadoop on a parallel file system (MooseFS) against HDFS",
    paper: "the HDFS/PVFS paper's Figures 3 to 11",
    parts: &["read-sizes", "layouts", "memory", "loss", "jobs"],
    options: || ExperimentOptions {
        disk_mbs: (4, 4),
        // Slower than the disks: a copy in the client's own host is worth something.
        link_mbit: 25,
        mib: 32,
        ..slow_disks()
    },
    about,
    measure: carry_out,
    shown: Shown {
        title: "MooseFS and HDFS",
        tables: include_str!("tables/pfs.txt"),
        wants: wants::all,
        ..Shown::NOTHING
    },
    ..Experiment::OF_RATES
};

fn about(options: &ExperimentOptions) -> String {
    let (read, write) = options.disk_mbs;
    format!(
        "MooseFS: a master beside the NameNode, a chunk server and a FUSE mount on every \
         host. HDFS runs on the same disks in the same run; its nodes are exchanged when \
         another kind has its turn, and warmed then. Caches are dropped before reading; what \
         was written is on the disk when its close returns (`HDD_FSYNC_BEFORE_CLOSE=1`). \
         Links are shaped in rate, not in latency (tbf: there is no netem). {}\n\nFigure 4: \
         one client reads a file of another host's server in calls of a size, links of that \
         rate, the machine's own disk. Figures 5 and 7 to 10: a client on each server writes \
         {} MiB with {} copies, reads it, then the next client's; modelled disks (not real \
         ones) of {read} MB/s reading and {write} MB/s writing, links of {} Mbit/s, blocks of \
         {} MiB. {} Figure 6: one client writes three copies to four servers on tmpfs, links of \
         {} Mbit/s: they limit, not memory and processors. Jobs: stock MapReduce on YARN, four \
         hosts with {} containers each, {} files of {} MiB, two copies, a map task a file.",
        Stock::EXPLAINED,
        options.mib,
        layouts::COPIES,
        options.link_mbit,
        options.block_mib,
        scaled(options, layouts::SERVERS[2]),
        layouts::MEMORY_LINK_MBIT,
        jobs::CONTAINERS,
        jobs::FILES,
        jobs::FILE_OF_MIB * options.mib,
    )
}

fn carry_out(run: &mut Run<'_>, part: &str) -> Result<()> {
    moosefs::check()?;
    match part {
        "read-sizes" => reads::LINKS
            .into_iter()
            .try_for_each(|link| reads::carry_out(run, link)),
        "layouts" => {
            let largest = run.options.largest;
            let mut servers = layouts::SERVERS
                .into_iter()
                .filter(|servers| *servers <= largest);
            servers.try_for_each(|servers| layouts::carry_out(run, servers))
        }
        "memory" => layouts::carry_out_on_memory(run),
        "loss" => loss::carry_out(run),
        _ => jobs::carry_out(run),
    }
}
