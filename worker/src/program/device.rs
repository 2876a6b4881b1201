//! Finds the device nodes of the leased GPU.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// NVIDIA's kernel driver lists its GPUs here.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// The nodes that all GPUs share.
const SHARED: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// Returns the nodes that a program needs for this GPU; none on a machine without NVIDIA's driver.
pub(super) fn nodes(uuid: &str) -> Result<Vec<PathBuf>, String> {
    nodes_of(uuid, Path::new(GPUS))
}

fn nodes_of(uuid: &str, gpus: &Path) -> Result<Vec<PathBuf>, String> {
    let Ok(entries) = fs::read_dir(gpus) else { return Ok(Vec::new()) };
    let mut texts = entries.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("information")).ok());
    let minor = texts.find_map(|text| minor_of(&text, uuid)).ok_or_else(|| {
        format!("no GPU in {} has the UUID {uuid}; programs need a whole GPU, and no MIG slice", gpus.display())
    })?;
    let own = PathBuf::from(format!("/dev/nvidia{minor}"));
    Ok(SHARED.iter().map(PathBuf::from).chain([own]).collect())
}

/// Returns the minor number of the GPU that `text` describes, if it has this UUID.
fn minor_of(text: &str, uuid: &str) -> Option<u32> {
    let value = |name| text.lines().find_map(|line| line.split_once(':').filter(|(left, _)| left.trim() == name));
    let (_, found) = value("GPU UUID")?;
    let (_, minor) = value("Device Minor")?;
    if found.trim() == uuid { minor.trim().parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(folder: &Path, uuid: &str, minor: u32) {
        let text = format!(
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 230\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\nDevice Minor: \t {minor}\n\
             GPU Excluded:\t No\n"
        );
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("information"), text).unwrap();
    }

    #[test]
    fn a_gpu_is_found_by_its_uuid_and_gets_no_node_of_another() {
        let gpus = tempfile::tempdir().unwrap();
        describe(&gpus.path().join("0000:01:00.0"), "GPU-11", 1);
        describe(&gpus.path().join("0000:02:00.0"), "GPU-1", 0);
        let nodes = nodes_of("GPU-1", gpus.path()).unwrap();
        assert_eq!(nodes.last().unwrap(), Path::new("/dev/nvidia0"));
        assert!(!nodes.contains(&"/dev/nvidia1".into()) && nodes.contains(&"/dev/nvidiactl".into()));
        assert!(nodes_of("MIG-1", gpus.path()).unwrap_err().contains("MIG"));
    }

    #[test]
    fn a_machine_without_the_driver_has_no_nodes() {
        assert_eq!(nodes_of("GPU-1", Path::new("/no/such/folder")), Ok(Vec::new()));
    }
}
