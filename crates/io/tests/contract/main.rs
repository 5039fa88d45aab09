//! The contract suite over every engine and decorator of the tree.

#[path = "../plugin/compile.rs"]
mod compile;
#[path = "../plugin/loop_device.rs"]
mod loop_device;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hayloft_contract::{CONTRACT_CASES, ContractCase, EngineRig, try_out};
use hayloft_io::Media;
use hayloft_io::decorators::{Effect, FaultRule, Faults, Faulty, IoMetrics, Metered};
use hayloft_io::{
    DirectLimits, Disk, DiskConfig, Engine, EngineConfig, IoError, engine_by_name, engine_for,
};
use libtest_mimic::{Arguments, Trial};

/// The engine called `name`, as test names have it.
fn rig(name: &str, plugins: &Path) -> Result<EngineRig, IoError> {
    let (name, variant) = name.split_once("_as_").unwrap_or((name, ""));
    let disk = DiskConfig {
        media: (variant == "rotating").then_some(Media::Rotating),
        ..DiskConfig::default()
    };
    let make = |dir: &Path, disk: &Arc<Disk>| match name.strip_prefix("plugin_") {
        Some(way) => {
            // A device for those that want one: an empty file of 1 GiB, or a disk over it.
            let device = dir.join("device");
            File::create(&device)
                .and_then(|f| f.set_len(1 << 30))
                .expect("a file");
            let options = match (way, variant) {
                ("raw", "disk") => loop_device::attach(&device).expect("there was one before"),
                ("raw", _) => device,
                _ => PathBuf::new(),
            };
            let name = format!(
                "plugin:{}/{way}.so {}",
                plugins.display(),
                options.display()
            );
            let config = EngineConfig::new(Arc::clone(disk));
            let choice = engine_for(&name, dir, &config);
            if variant == "disk" {
                // It goes when the engine closes it.
                loop_device::detach(&options);
            }
            choice.map(|choice| choice.engine)
        }
        None => engine(name, variant, disk),
    };
    EngineRig::new(&std::env::temp_dir(), disk, make)
}

fn engine(name: &str, variant: &str, disk: &Arc<Disk>) -> Result<Arc<dyn Engine>, IoError> {
    let mut config = EngineConfig::new(Arc::clone(disk));
    if !variant.is_empty() {
        // Around the page cache whenever alignment allows, however small.
        config.direct = DirectLimits {
            read_min: 1,
            write_min: 1,
            cache_client_reads: variant == "cached",
        };
    }
    let plain = |name| engine_by_name(name, &config);
    Ok(match name {
        "metered" => metered(plain("posix")?),
        "faulty" => faulty(plain("posix")?),
        "stacked" => metered(faulty(plain("direct")?)),
        plain_name => plain(plain_name)?,
    })
}

fn metered(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Metered::new(inner, Arc::new(IoMetrics::default())))
}

/// With rules that never change a result.
fn faulty(inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
    let faults = Faults::new(1);
    faults.add(FaultRule::new(Effect::Errno(libc::EIO)).at(|path| path.ends_with("never")));
    Arc::new(Faulty::new(inner, faults))
}

/// Engines and decorators, as tests name them. `as_`: around the page cache even when small;
/// clients' reads through it; on a disk that is taken for a rotating one; on a device of the
/// kernel.
const ENGINES: [&str; 17] = [
    "posix",
    "direct",
    "null",
    "metered",
    "faulty",
    "stacked",
    "direct_as_eager",
    "direct_as_cached",
    "posix_as_rotating",
    "direct_as_rotating",
    "plugin_files",
    "plugin_few_bytes",
    "plugin_one_call",
    "plugin_one_a_file",
    "plugin_null",
    "plugin_raw",
    "plugin_raw_as_disk",
];

/// No case takes so long on a machine that is well.
const LIMIT: Duration = Duration::from_secs(120);

/// Plug-ins: the example, and it with short transfers and with fewer calls at a time.
fn compile_plugins() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let to = |name: &str| dir.path().join(name).with_extension("so");
    compile::plugin("../../plugins/examples/files.c", &to("files"), &[]);
    compile::plugin("../../plugins/raw.c", &to("raw"), &[]);
    for (name, way) in [("few_bytes", 10), ("one_call", 11), ("one_a_file", 12)] {
        compile::plugin("tests/plugin/odd.c", &to(name), &[format!("-DWAY={way}")]);
    }
    // Cargo builds the example when it runs all tests of the package.
    let tests = std::env::current_exe().expect("this test");
    let example = tests
        .ancestors()
        .nth(2)
        .map(|target| target.join("examples/libnull_plugin.so"));
    match example.filter(|path| path.exists()) {
        Some(example) => {
            std::fs::copy(example, to("null")).expect("copies");
        }
        None => println!("plugin_null: skipped, the example null_plugin was not built"),
    }
    dir
}

/// Whether there are devices for tests; otherwise prints why not.
fn has_loop_devices(dir: &Path) -> bool {
    let file = dir.join("tried");
    File::create(&file)
        .and_then(|f| f.set_len(1 << 20))
        .expect("a file");
    match loop_device::attach(&file) {
        Ok(device) => {
            loop_device::detach(&device);
            true
        }
        Err(why) => {
            println!("plugin_raw_as_disk: skipped, {why}");
            false
        }
    }
}

/// A test for each engine and case.
fn main() {
    let plugins = compile_plugins();
    let at = plugins.path().to_owned();
    let pairs = ENGINES
        .into_iter()
        .flat_map(|engine| CONTRACT_CASES.iter().map(move |case| (engine, *case)));
    let null = at.join("null.so").exists();
    let disks = has_loop_devices(&at);
    let pairs = pairs.filter(|(engine, _)| match *engine {
        "plugin_null" => null,
        "plugin_raw_as_disk" => disks,
        _ => true,
    });
    let trial = |(engine, case): (&'static str, ContractCase)| {
        let at = at.clone();
        Trial::test(format!("{engine}::{}", case.name), move || {
            match try_out(case, move || rig(engine, &at), LIMIT).wrong {
                None => Ok(()),
                Some(wrong) => Err(wrong.into()),
            }
        })
    };
    let arguments = Arguments::from_args();
    let conclusion = libtest_mimic::run(&arguments, pairs.map(trial).collect());
    // The exit drops nothing.
    drop(plugins);
    conclusion.exit();
}
