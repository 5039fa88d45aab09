//! A group of the experiments, see `experiments`.

mod experiments;

fn main() -> std::process::ExitCode {
    experiments::run("experiments_pfs_jobs")
}
