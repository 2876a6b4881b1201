//! Notebooks on workers: `gpufleet notebook run` runs all cells in one kernel on a worker's machine, and the executed notebook comes back,
//! also if a cell fails.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gpufleet_local::setup::Part;
use gpufleet_tests::{Ended, Ground, TestWorker, WAIT, gpufleet_command, signal};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::timeout,
};

/// A fleet whose worker offers an environment with papermill, and one without.
struct Scene {
    ground: Ground,
    _worker: TestWorker,
    here: TempDir,
}

impl Scene {
    async fn start(label: &str) -> Self {
        let ground = Ground::shared(label).await;
        let with_papermill = format!("notebooks={}", Part::PythonTools.folder().unwrap().display());
        let arguments = ["--pool", "gpu:programs=1", "--environment", &with_papermill, "--environment", "plain=/usr"];
        let worker = ground.worker_with(&arguments).await;
        Self { ground, _worker: worker, here: tempfile::tempdir().unwrap() }
    }

    /// Writes the notebook with these cells.
    fn write(&self, cells: &[&str]) {
        let cells = cells.iter().enumerate().map(|(index, source)| cell(index, source)).collect::<Vec<_>>();
        let kernel = json!({ "name": "python3", "language": "python", "display_name": "Python 3" });
        let notebook =
            json!({ "nbformat": 4, "nbformat_minor": 5, "metadata": { "kernelspec": kernel }, "cells": cells });
        fs::write(self.path("in.ipynb"), notebook.to_string()).unwrap();
    }

    /// Runs the notebook with these cells.
    async fn run(&self, cells: &[&str], options: &[&str]) -> Ended {
        self.write(cells);
        self.notebook_run(&[&["in.ipynb"], options].concat()).await
    }

    async fn notebook_run(&self, options: &[&str]) -> Ended {
        let words = [&["notebook", "run", "--pool", "gpu"], options].concat();
        gpufleet_command(self.here.path(), &[("GPUFLEET_AMQP_URL", &self.ground.node_url())], &words).await
    }

    /// Returns the outputs of each code cell of an executed notebook.
    fn outputs(&self, name: &str) -> Vec<Vec<Value>> {
        let notebook: Value = serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap();
        let cells = notebook["cells"].as_array().unwrap().iter().filter(|cell| cell["cell_type"] == "code");
        cells.map(|cell| cell["outputs"].as_array().unwrap().clone()).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }
}

/// A cell of code. papermill puts the values of parameters after the cell with the tag `parameters`, which is the first one here.
fn cell(index: usize, source: &str) -> Value {
    let tags: &[&str] = if index == 0 { &["parameters"] } else { &[] };
    let (id, metadata) = (format!("cell-{index}"), json!({ "tags": tags }));
    json!({ "cell_type": "code", "id": id, "metadata": metadata, "source": source, "outputs": [], "execution_count": null })
}

/// Returns what a cell printed.
fn printed(outputs: &[Value]) -> String {
    outputs.iter().map(|output| text(&output["text"])).collect()
}

/// The text of a notebook is a string, or a list of lines.
fn text(value: &Value) -> String {
    match value {
        Value::Array(lines) => lines.iter().map(text).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}

const RICH: &str = "class Table:\n    def _repr_html_(self):\n        return f'<b>{total}</b>'\nTable()";

#[tokio::test(flavor = "multi_thread")]
async fn an_executed_notebook_comes_back_with_the_outputs_of_its_cells() {
    let scene = Scene::start("notebook-run").await;
    fs::write(scene.path("data.txt"), "5\n").unwrap();
    fs::write(scene.path("p.yaml"), "scale: 1\nword: file\n").unwrap();
    let cells = [
        "scale, rate, word = 0, 0.0, ''",
        "total = scale * int(open('data.txt').read())\nprint('total', total, rate, word)",
        RICH,
        "import os, pathlib\npathlib.Path('out').mkdir()\npathlib.Path('out/x').write_text(os.environ['SEED'])",
    ];
    let options = [
        &["--env", "notebooks", "--upload", "data.txt", "--download", "out/**", "--variable", "SEED=7"][..],
        &["--parameters", "p.yaml", "-p", "scale", "-3", "-p", "rate", "0.5", "--report", "run.json"],
    ]
    .concat();
    let ended = scene.run(&cells, &options).await.ok();
    assert!(ended.stdout.contains("total -15 0.5 file\n"), "the output of the cells streams: {ended:?}");
    assert!(ended.stderr.contains("gpufleet: started on EMULATED device"), "{ended:?}");
    assert!(ended.stderr.ends_with("gpufleet: the executed notebook is ./in-done.ipynb\n"), "{ended:?}");
    let outputs = scene.outputs("in-done.ipynb");
    // papermill adds the cell with the parameters.
    assert_eq!(outputs.len(), cells.len() + 1, "{outputs:?}");
    assert_eq!(printed(&outputs[2]), "total -15 0.5 file\n");
    assert_eq!(text(&outputs[3][0]["data"]["text/html"]), "<b>-15</b>");
    assert_eq!(fs::read_to_string(scene.path("out/x")).unwrap(), "7");
    let report: Value = serde_json::from_slice(&fs::read(scene.path("run.json")).unwrap()).unwrap();
    assert_eq!(report["program"]["files"], json!(["in-done.ipynb", "out/x"]), "{report}");
    // A second run does not begin, because its notebook would replace that of the first.
    let again = scene.run(&cells, &options).await;
    assert!(again.code == 3 && again.stderr.contains("in-done.ipynb exists already"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notebook_that_fails_comes_back_with_what_ran_before() {
    let scene = Scene::start("notebook-fails").await;
    let cells = ["x = 6", "print(x * 7)", "x / 0", "print('never')"];
    fs::create_dir(scene.path("results")).unwrap();
    let ended = scene.run(&cells, &["--env", "notebooks", "--output", "results/failed.ipynb"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("42\n") && ended.stdout.contains("ZeroDivisionError"), "{ended:?}");
    assert!(ended.stderr.contains("the executed notebook is results/failed.ipynb"), "{ended:?}");
    assert!(!ended.stderr.contains("install papermill"), "{ended:?}");
    let outputs = scene.outputs("results/failed.ipynb");
    assert_eq!(outputs.iter().map(|outputs| printed(outputs)).collect::<String>(), "42\n", "{outputs:?}");
    assert!(outputs.iter().flatten().any(|output| output["ename"] == "ZeroDivisionError"), "{outputs:?}");
    assert!(outputs.last().unwrap().is_empty(), "the last cell did not run");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_notebook_comes_back_as_it_was_saved() {
    let scene = Scene::start("notebook-interrupted").await;
    scene.write(&["x = 6", "print(x * 7)", "import time\nprint('begun')\ntime.sleep(600)"]);
    let words = ["notebook", "run", "in.ipynb", "--pool", "gpu", "--env", "notebooks"];
    let mut running = scene.ground.start_gpufleet(scene.here.path(), &words);
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let begun = async { while lines.next_line().await.unwrap().expect("the notebook runs") != "begun" {} };
    timeout(WAIT, begun).await.expect("the last cell begins");
    signal(running.id().expect("it runs"), libc::SIGINT);
    let rest = async { while lines.next_line().await.unwrap().is_some() {} };
    timeout(WAIT, rest).await.expect("the command ends");
    let ended = Ended::from(timeout(WAIT, running.wait_with_output()).await.expect("the command ends").unwrap());
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.stderr.contains("the executed notebook is ./in-done.ipynb"), "{ended:?}");
    let outputs = scene.outputs("in-done.ipynb");
    assert_eq!(printed(&outputs[1]), "42\n", "{outputs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_notebook_is_fetched() {
    let scene = Scene::start("notebook-detached").await;
    let here: &Path = scene.here.path();
    let ended = scene.run(&["x = 6", "print(x * 7)"], &["--env", "notebooks", "--detach"]).await.ok();
    let id = ended.stdout.trim().to_owned();
    scene.ground.gpufleet(here, &["wait", &id]).await.ok();
    scene.ground.gpufleet(here, &["fetch", &id, "--dir", "results"]).await.ok();
    assert_eq!(scene.outputs("results/in-done.ipynb").last().map(|outputs| printed(outputs)).unwrap(), "42\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_without_papermill_and_a_file_that_is_no_notebook_are_named() {
    let scene = Scene::start("notebook-refused").await;
    let missing = scene.run(&["1"], &["--env", "plain"]).await;
    assert!(missing.code == 1 && missing.stdout.contains("No module named papermill"), "{missing:?}");
    assert!(missing.stderr.contains("install papermill and ipykernel in the environment plain"), "{missing:?}");
    assert!(!scene.path("in-done.ipynb").exists());
    fs::write(scene.path("script.py"), "print(1)\n").unwrap();
    let refused = scene.notebook_run(&["script.py", "--env", "notebooks"]).await;
    assert!(refused.code == 3 && refused.stderr.contains("script.py is not a Jupyter notebook"), "{refused:?}");
}
