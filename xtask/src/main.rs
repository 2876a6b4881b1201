//! The project's development commands, run as `cargo xtask <command>`. Each has a file of its own.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gpufleet_local::setup::Part;

mod api_fuzz;
mod bench;
mod bench_comparison;
mod bench_emulator;
mod bench_ledger;
mod ci;
mod console;
mod debian;
mod demo;
mod deny;
mod dist;
mod docs;
mod emulator_programs;
mod fuzz;
mod interrupt;
mod kernels;
mod monitoring;
mod portable;
mod ptx_cases;
mod python;
mod python_peers;
mod setup;
mod sqlx;
mod terminal;
mod test;
mod test_chart;
mod test_cluster;
mod test_compose;
mod test_containers;
mod test_debian;
mod test_images;
mod test_packages;
mod wheel;
mod workspace;

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "The commands of the gpufleet project",
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what this machine lacks: RabbitMQ, Postgres, NVRTC, and for the tests Python's pika, the tools of the package and a browser
    Setup,
    /// Set up, build, and run three jobs on a private fleet: saxpy, an edge filter in CUDA C, a Mandelbrot picture
    Demo(demo::Options),
    /// Set up, build, and run the whole test suite
    Test(test::Options),
    /// Set up, build, and run the scenarios that need a RabbitMQ cluster of three nodes; arguments go to the tests
    TestCluster(test_cluster::Options),
    /// Set up, build, and run numba-cuda in a container on a worker with an emulated device; needs root
    TestContainers,
    /// Set up, build, and run the scenarios in a fresh Debian, on its RabbitMQ and Postgres; needs root; arguments after -- go to the tests
    TestDebian(test_debian::Options),
    /// Build the container images with buildah on stand-ins for their bases, and run a job in the worker's; needs root
    TestImages,
    /// Build and start the fleet of compose.yaml with Docker Compose and podman in a booted Debian, and kill a worker; needs root
    TestCompose,
    /// Set up, render the Helm chart, check it against Kubernetes' schemas, and run its pods' programs; arguments go to pytest
    TestChart(test_chart::Options),
    /// Build the Python package and run its tests, on a private fleet, and its type checks; arguments go to pytest
    Python(python::Options),
    /// Install Airflow and test the Python package with its scheduler and triggerer; arguments go to pytest
    PythonAirflow(python_peers::Options),
    /// Install Dagster and test the Python package with it; arguments go to pytest
    PythonDagster(python_peers::Options),
    /// Install Spark, Ray, Dask, DuckDB, Polars and pandas, and test the Python package with them; arguments go to pytest
    PythonPipelines(python_peers::Options),
    /// Install PyTorch and notebooks of other authors, and test the Python package with them; arguments go to pytest
    PythonForeign(python_peers::Options),
    /// Install schemathesis, and send the read API and the console requests derived from the OpenAPI document; arguments go to schemathesis
    ApiFuzz(api_fuzz::Options),
    /// Install numba-cuda and run its own tests on the emulated driver; arguments name files of tests
    EmulatorNumba(emulator_programs::Options),
    /// Install tinygrad and train a small network with it on the emulated driver, as CUDA graphs too
    EmulatorTinygrad(emulator_programs::Options),
    /// Build PyCUDA and run its examples on the emulated driver; arguments name examples
    EmulatorPycuda(emulator_programs::Options),
    /// Check and build the web application of the console, and test it in Chromium on a private fleet; arguments go to Node's test runner
    Console(console::Options),
    /// Build the wheel and the source distribution of the Python package into target/wheels
    Wheel,
    /// Build what a release consists of into target/packages: the Debian package, the archive of the command, the wheel
    Dist(dist::Options),
    /// Install that Debian package into fresh Debian systems with debootstrap, and run a user's first minutes there; needs root
    TestPackages(test_packages::Options),
    /// Fuzz the emulator's PTX loader, or the messages of sessions, with libFuzzer
    Fuzz(fuzz::Options),
    /// What continuous integration runs: format, clippy, tests, whether the catalog's PTX and the ledger's queries are up to date
    Ci,
    /// Check the licences, sources and duplicates of all packages with cargo-deny
    Deny(deny::Options),
    /// Build the documentation site, and check its links, its prose and its generated reference
    Docs(docs::Options),
    /// Install Prometheus, check the alerts with it, and let it watch a private fleet in which two of them fire
    Monitoring,
    /// Build the catalog's PTX from its CUDA C
    Kernels(kernels::Options),
    /// Describe the ledger's queries anew, for builds without a database
    Sqlx(sqlx::Options),
    /// Run the PTX cases on the emulator or on a GPU's driver, count proven forms, check them with ptxas
    PtxCases(ptx_cases::Options),
    /// Build with optimisation and measure round trips of small jobs; arguments go to the benchmark
    Bench(bench::Options),
    /// Measure what jobs that fault, hang or ask for too much memory cost the other jobs
    BenchChaos(bench::Options),
    /// Measure what a worker adds to a tiny warm job
    BenchOverhead(bench::Options),
    /// Measure the Python package next to the Rust client
    BenchPython(bench::Options),
    /// Measure how pools and workers share devices
    BenchSharing(bench::Options),
    /// Measure jobs that share one large input
    BenchInputs(bench::Options),
    /// Measure jobs that prefer the worker that has their input
    BenchAffinity(bench::Options),
    /// Measure how many events per second a recorder writes, with and without statistics, on one connection and on two
    BenchRecording(bench::Options),
    /// Install Celery, Ray and Slurm, build with optimisation, and measure gpufleet beside them
    BenchComparison(bench::Options),
    /// Count what the ledger's queries read with 2 and 10 million jobs, and migrate 20 million attempts beside a writer
    BenchLedger(bench_ledger::Options),
    /// Build with optimisation and measure the emulated device beside plain Rust; arguments go to the benchmark
    BenchEmulator(bench_emulator::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Options::parse().command {
        Command::Setup => setup::run().await,
        Command::Demo(options) => Box::pin(demo::run(&options)).await,
        Command::Test(options) => test::run(&options, &[]).await,
        Command::TestCluster(options) => test_cluster::run(&options).await,
        Command::TestContainers => test_containers::run().await,
        Command::TestDebian(options) => test_debian::run(&options).await,
        Command::TestImages => test_images::run().await,
        Command::TestCompose => test_compose::run().await,
        Command::TestChart(options) => test_chart::run(&options).await,
        Command::Python(options) => python::run(&options).await,
        Command::PythonAirflow(options) => python_peers::run(&python_peers::AIRFLOW, &options).await,
        Command::PythonDagster(options) => python_peers::run(&python_peers::DAGSTER, &options).await,
        Command::PythonPipelines(options) => python_peers::run(&python_peers::PIPELINES, &options).await,
        Command::PythonForeign(options) => python_peers::run(&python_peers::FOREIGN, &options).await,
        Command::ApiFuzz(options) => Box::pin(api_fuzz::run(&options)).await,
        Command::EmulatorNumba(options) => emulator_programs::run(&emulator_programs::NUMBA, &options).await,
        Command::EmulatorTinygrad(options) => emulator_programs::run(&emulator_programs::TINYGRAD, &options).await,
        Command::EmulatorPycuda(options) => emulator_programs::run(&emulator_programs::PYCUDA, &options).await,
        Command::Console(options) => Box::pin(console::run(&options)).await,
        Command::Wheel => wheel::run().await,
        Command::Dist(options) => dist::run(&options).await,
        Command::TestPackages(options) => test_packages::run(&options).await,
        Command::Fuzz(options) => fuzz::run(&options).await,
        Command::Ci => ci::run().await,
        Command::Deny(options) => deny::run(&options).await,
        Command::Docs(options) => docs::run(&options).await,
        Command::Monitoring => monitoring::run().await,
        Command::Kernels(options) => kernels::run(&options).await,
        Command::Sqlx(options) => sqlx::run(&options).await,
        Command::PtxCases(options) => ptx_cases::run(&options).await,
        Command::Bench(options) => {
            bench::run("round-trips", &[Part::Services, Part::Comparison, Part::Pika], &options).await
        }
        Command::BenchChaos(options) => bench::run("chaos", &[Part::Services], &options).await,
        Command::BenchOverhead(options) => bench::run("overhead", &[Part::Services], &options).await,
        Command::BenchPython(options) => bench::run_python(&options).await,
        Command::BenchSharing(options) => bench::run("sharing", &[Part::Services], &options).await,
        Command::BenchInputs(options) => bench::run("inputs", &[Part::Services], &options).await,
        Command::BenchAffinity(options) => bench::run("affinity", &[Part::Services], &options).await,
        Command::BenchRecording(options) => bench::run("recording", &[Part::Services], &options).await,
        Command::BenchComparison(options) => bench_comparison::run(&options).await,
        Command::BenchLedger(options) => bench_ledger::run(&options).await,
        Command::BenchEmulator(options) => bench_emulator::run(&options).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<interrupt::Interrupted>() {
            Some(interrupted) => {
                eprintln!("{interrupted}; nothing was left running");
                interrupted.exit_code()
            }
            None => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}
