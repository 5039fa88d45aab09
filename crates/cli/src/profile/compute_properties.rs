//! Which properties the compute profile sets for each tool, their values and reasons.
//!
//! Names and defaults are those of Hadoop 3.5.0 (`mapred-default.xml`, `yarn-default.xml`,
//! `hdfs-default.xml`, the pages on deprecated properties and the CapacityScheduler), Spark 4.0.1
//! (the page on configuration), Tez 0.10.5 (`TezConfiguration`, `TezSplitGrouper`) and Flink
//! 1.20.1 (the page on configuration). Values are those of Shafer's thesis, 4.1 and figure 4.1:
//! there a heartbeat of 0.3 s gave 11 %, a JVM for several tasks 27 %, tasks of 5 GB 37 %, all
//! together 46 %.

use clap::ValueEnum;
use serde::Serialize;

use self::ValueForm::{Bytes, Flag, Number, SpacedTime, Time};

/// A tool that runs jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeTool {
    /// Apache Spark: lines of spark-defaults.conf.
    Spark,
    /// MapReduce on YARN: XML of Hadoop's files.
    #[value(name = "mapreduce")]
    MapReduce,
    /// Apache Tez on YARN, as Hive uses it: XML of Hadoop's files.
    Tez,
    /// Apache Flink: lines of config.yaml, or of flink-conf.yaml.
    Flink,
}

/// Where jobs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobLayout {
    /// On hosts of their own; storage has others, in the same racks if possible.
    Split,
}

/// How the text of a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// An integer, as Hadoop reads most.
    Number,
    /// Bytes, with a binary unit such as `5g` if one is there.
    Bytes,
    /// A duration: milliseconds, or with a unit such as `3s`.
    Time,
    /// The same, with or without spaces before the unit, as Flink reads it.
    SpacedTime,
    /// `true` or `false`.
    Flag,
}

/// A property of the profile.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ComputeProperty {
    /// The file of the tool that it belongs into.
    pub file: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What the profile sets.
    pub value: &'static str,
    /// What counts where nothing sets it, if anything does.
    pub default: Option<&'static str>,
    /// Why, in one or two sentences.
    pub reason: &'static str,
    /// How its value is read.
    #[serde(skip)]
    pub form: ValueForm,
    /// Its name before, which Hadoop still reads.
    #[serde(skip)]
    pub old: Option<&'static str>,
    /// The property whose value counts where neither is set.
    #[serde(skip)]
    pub base: Option<&'static str>,
}

/// The file of the CapacityScheduler alone.
pub const CAPACITY: &str = "capacity-scheduler.xml";
/// Site of YARN's daemons, and of what asks them.
pub const YARN: &str = "yarn-site.xml";
const MAPRED: &str = "mapred-site.xml";
const TEZ: &str = "tez-site.xml";
/// Spark's only file.
pub const SPARK: &str = "spark-defaults.conf";
/// Flink's file.
pub const FLINK: &str = "config.yaml";

/// 5 GB, as 40 blocks of 128 MiB: the thesis's large tasks.
const TASK_BYTES: &str = "5368709120";
/// 0.3 s: the thesis's heartbeat.
const BEAT_MS: &str = "300";

const fn set(
    file: &'static str,
    (name, value): (&'static str, &'static str),
    (form, default): (ValueForm, Option<&'static str>),
    reason: &'static str,
) -> ComputeProperty {
    ComputeProperty {
        file,
        name,
        value,
        default,
        reason,
        form,
        old: None,
        base: None,
    }
}

impl ComputeProperty {
    const fn once(mut self, old: &'static str) -> Self {
        self.old = Some(old);
        self
    }

    const fn or_by(mut self, base: &'static str) -> Self {
        self.base = Some(base);
        self
    }
}

/// What every job on YARN gains from.
const ON_YARN: [ComputeProperty; 2] = [
    set(
        YARN,
        (
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms",
            BEAT_MS,
        ),
        (Number, Some("1000")),
        "A free slot waits for its next heartbeat. The ResourceManager answers three times as \
         many: keep the default above some hundred NodeManagers. With \
         heartbeat-interval-scaling-enable, set its min-ms too.",
    ),
    set(
        CAPACITY,
        ("yarn.scheduler.capacity.node-locality-delay", "0"),
        (Number, Some("40")),
        "No host of jobs holds blocks, so waiting for one is lost. Racks are still preferred.",
    ),
];

const OF_MAPREDUCE: [ComputeProperty; 5] = [
    set(
        MAPRED,
        (
            "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms",
            BEAT_MS,
        ),
        (Number, Some("1000")),
        "The ApplicationMaster hears of free containers at its next heartbeat.",
    ),
    set(
        MAPRED,
        ("mapreduce.input.fileinputformat.split.maxsize", TASK_BYTES),
        (Number, None),
        "Only for jobs that combine splits: they are so large that the start of a JVM weighs \
         little. A job whose input is smaller than this times the slots should set less.",
    )
    .once("mapred.max.split.size"),
    set(
        MAPRED,
        (
            "mapreduce.input.fileinputformat.split.minsize.per.node",
            "0",
        ),
        (Number, Some("0")),
        "What is left of a storage host's blocks is combined with its rack's.",
    )
    .once("mapred.min.split.size.per.node"),
    set(
        MAPRED,
        (
            "mapreduce.input.fileinputformat.split.minsize.per.rack",
            "1",
        ),
        (Number, Some("0")),
        "What is left of a rack's blocks stays a split of this rack, and is not mixed with others. \
         A job that sets minsize.per.node above 1 must set this too.",
    )
    .once("mapred.min.split.size.per.rack"),
    set(
        MAPRED,
        ("mapreduce.job.ubertask.enable", "true"),
        (Flag, Some("false")),
        "MapReduce on YARN reuses no JVM. A job of at most 9 maps over a block of input, and one \
         reduce, runs in its ApplicationMaster's. That one needs no less memory and vcores than a \
         task.",
    ),
];

const OF_TEZ: [ComputeProperty; 5] = [
    set(
        TEZ,
        ("tez.am.am-rm.heartbeat.interval-ms.max", BEAT_MS),
        (Number, Some("1000")),
        "The ApplicationMaster hears of free containers at its next heartbeat.",
    ),
    set(
        TEZ,
        ("tez.am.container.reuse.enabled", "true"),
        (Flag, Some("true")),
        "A container runs task after task, so that a JVM starts once.",
    ),
    set(
        TEZ,
        ("tez.am.container.reuse.rack-fallback.enabled", "true"),
        (Flag, Some("true")),
        "A container takes tasks whose blocks are in its rack; on its own host there are none.",
    ),
    set(
        TEZ,
        (
            "tez.am.container.reuse.locality.delay-allocation-millis",
            "0",
        ),
        (Number, Some("250")),
        "A free container does not wait for a task of its own host, which never comes.",
    ),
    set(
        TEZ,
        ("tez.grouping.max-size", TASK_BYTES),
        (Number, Some("1073741824")),
        "Large inputs get large groups. Tez still makes 1.7 groups for each container of the queue \
         where the input is small.",
    ),
];

const OF_SPARK: [ComputeProperty; 4] = [
    set(
        SPARK,
        ("spark.locality.wait.node", "0"),
        (Time, Some("3s")),
        "Spark waits for a host only where it has an executor, so this matters where some hosts \
         hold both. Reduce tasks and cached data of another executor on the host are not waited \
         for either.",
    )
    .or_by("spark.locality.wait"),
    set(
        SPARK,
        ("spark.locality.wait.rack", "3s"),
        (Time, Some("3s")),
        "A block in the rack spares the links between racks: this wait stays.",
    )
    .or_by("spark.locality.wait"),
    set(
        SPARK,
        ("spark.sql.files.maxPartitionBytes", TASK_BYTES),
        (Bytes, Some("134217728")),
        "Large tables and DataFrames get large tasks. Spark makes them smaller where there would \
         be fewer tasks than cores. With dynamic allocation, set spark.sql.files.minPartitionNum \
         to the cores wanted. Larger partitions need more memory for sorts and caches.",
    ),
    set(
        SPARK,
        ("spark.hadoop.dfs.client.read.prefetch.size", TASK_BYTES),
        (Number, None),
        "A task asks the NameNode once for all its blocks, and not for each ten of them.",
    )
    .or_by("dfs.client.read.prefetch.size"),
];

const OF_FLINK: [ComputeProperty; 1] = [set(
    FLINK,
    ("yarn.heartbeat.container-request-interval", BEAT_MS),
    (SpacedTime, Some("500")),
    "Only on YARN: TaskManagers that are wanted are heard of at the next heartbeat. Flink's \
         page says that a lower value may allocate too many containers.",
)];

/// The properties of a tool.
pub fn properties(tool: ComputeTool, layout: JobLayout) -> Vec<ComputeProperty> {
    let JobLayout::Split = layout;
    match tool {
        ComputeTool::Spark => OF_SPARK.to_vec(),
        ComputeTool::Flink => OF_FLINK.to_vec(),
        ComputeTool::MapReduce => [&OF_MAPREDUCE[..], &ON_YARN].concat(),
        ComputeTool::Tez => [&OF_TEZ[..], &ON_YARN].concat(),
    }
}

impl ComputeTool {
    /// The versions whose documentation has the names.
    pub fn names_of(self) -> &'static str {
        match self {
            Self::Spark => "Spark 4.0.1",
            Self::MapReduce => "Hadoop 3.5.0",
            Self::Tez => "Tez 0.10.5 and Hadoop 3.5.0",
            Self::Flink => "Flink 1.20.1",
        }
    }

    /// What one might look for here, and why the profile does not set it.
    pub fn nothing_to_set(self) -> &'static [&'static str] {
        match self {
            Self::Spark => &[
                "On YARN, what the profile for mapreduce sets in yarn-site.xml and \
                 capacity-scheduler.xml counts too.",
                "Executors keep their JVM, and ask YARN at intervals from 200 ms up to 3 s while \
                 some are wanted.",
                "Spark combines files by size alone, and RDDs of text take a block a task.",
            ],
            Self::MapReduce => &[
                "A job of the new API asks for CombineTextInputFormat itself, by \
                 -D mapreduce.job.inputformat.class=...; in mapred-site.xml it stops every job of \
                 the old API.",
            ],
            Self::Tez => &[
                "Tez combines by host, and then by rack, as it comes.",
                "If storage is in other racks than jobs, set \
                 tez.am.container.reuse.non-local-fallback.enabled to true.",
            ],
            Self::Flink => &[
                "On YARN, what the profile for mapreduce sets in yarn-site.xml and \
                 capacity-scheduler.xml counts too.",
                "Sources of files take a block a split, and wait for no locality.",
                "TaskManagers keep their JVM for all tasks of a job.",
            ],
        }
    }
}
