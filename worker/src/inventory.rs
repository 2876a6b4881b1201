//! Lists the CUDA devices of this machine.
//!
//! A child process lists them, because the supervisor loads neither CUDA nor NVIDIA's management library (NVML). Through CUDA, a process
//! sees at most one MIG slice of a GPU, and may then see no whole GPU beside it. For each device that NVML knows and CUDA did not show,
//! another child is started with `CUDA_VISIBLE_DEVICES` set to the device's UUID, so that a device's properties always come from CUDA.

mod child;
mod nodes;

use std::{io, time::Duration};

use tokio::time::timeout;
use tracing::warn;

pub use self::child::{Args, main};
use self::{
    child::{Answer, Listing},
    nodes::Nodes,
};
use crate::{
    executor::{CudaSpec, DeviceInfo, KillOnDrop, StartError, VISIBLE_DEVICES, receive},
    own_executable,
};

/// Time limit for listing the devices: the same as for starting an executor, which loads the same driver.
const LIST_DEADLINE: Duration = Duration::from_secs(60);

/// The libraries to query, and the user to query them as.
#[derive(Debug, Clone)]
pub struct Source {
    pub cuda: CudaSpec,
    /// NVIDIA's management library; without it, only the devices that CUDA shows are listed.
    pub nvml: Option<String>,
    /// The user that the child runs as if the worker is root.
    pub user: Option<String>,
}

/// Why listing the devices failed.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error(transparent)]
    Refused(#[from] StartError),
    #[error("failed to list the devices: the process died: {0}")]
    Died(String),
    #[error("failed to list the devices: no answer within {} s", LIST_DEADLINE.as_secs())]
    Timeout,
    #[error("failed to list the devices: {0}")]
    Spawn(#[from] io::Error),
}

/// Lists all devices, numbered as `--devices` names them. Cancelling kills the child.
pub async fn list(source: &Source) -> Result<Vec<DeviceInfo>, InventoryError> {
    make_nodes(&source.cuda).await;
    let visible = std::env::var(VISIBLE_DEVICES).ok();
    let Listing { mut devices, uuids } = ask(source, None).await?;
    for uuid in hidden(&uuids, &devices, visible.as_deref()) {
        match ask(source, Some(&uuid)).await {
            Ok(alone) => devices.extend(alone.devices.into_iter().filter(|device| device.uuid == uuid)),
            Err(error) => warn!(uuid, %error, "device skipped"),
        }
    }
    for (number, device) in (0..).zip(&mut devices) {
        device.ordinal = number;
    }
    Ok(devices)
}

/// Creates missing NVIDIA device nodes if possible, because an unprivileged child can't.
pub async fn make_nodes(cuda: &CudaSpec) {
    if *cuda != CudaSpec::Emulated {
        Nodes::default().make().await;
    }
}

/// Returns the devices that NVML knows and CUDA does not show, without those that `CUDA_VISIBLE_DEVICES` hides.
fn hidden(known: &[String], shown: &[DeviceInfo], visible: Option<&str>) -> Vec<String> {
    let is_visible = |uuid: &str| match visible {
        None => true,
        // CUDA resolves numbers itself, so it has already shown the devices that they name.
        Some(list) => list.split(',').map(str::trim).any(|name| is_uuid(name) && begins_with(uuid, name)),
    };
    let is_shown = |uuid: &str| shown.iter().any(|device| device.uuid == uuid);
    known.iter().filter(|uuid| is_visible(uuid) && !is_shown(uuid)).cloned().collect()
}

fn is_uuid(name: &str) -> bool {
    ["GPU-", "MIG-"].iter().any(|kind| begins_with(name, kind))
}

/// Returns whether `name` selects this UUID: a prefix is enough, as for the driver.
pub(crate) fn begins_with(uuid: &str, name: &str) -> bool {
    uuid.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

async fn ask(source: &Source, uuid: Option<&str>) -> Result<Listing, InventoryError> {
    let mut command = own_executable::command(None, "device-list");
    command.arg("--cuda").arg(source.cuda.to_string());
    if let Some(user) = &source.user {
        command.arg("--user").arg(user);
    }
    match (uuid, &source.nvml) {
        (Some(uuid), _) => _ = command.env(VISIBLE_DEVICES, uuid),
        (None, Some(library)) => _ = command.arg("--nvml").arg(library),
        (None, None) => {}
    }
    let (child, mut incoming, _outgoing) = KillOnDrop::spawn(command, None).await?;
    match timeout(LIST_DEADLINE, receive(&mut incoming)).await {
        Ok(Ok(Some(Answer::Devices(listing)))) => Ok(listing),
        Ok(Ok(Some(Answer::Refused(refusal)))) => Err(StartError::from(refusal).into()),
        Ok(Ok(None) | Err(_)) => Err(InventoryError::Died(child.end().await.describe())),
        Err(_) => Err(InventoryError::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_cuda_does_not_show_are_asked_for_one_by_one() {
        let known: Vec<String> = ["GPU-1", "MIG-2a", "MIG-2b"].map(str::to_owned).to_vec();
        let shown = [DeviceInfo::named(0, "MIG-2a")];
        assert_eq!(hidden(&known, &shown, None), ["GPU-1", "MIG-2b"]);
        assert!(hidden(&[], &shown, None).is_empty(), "without NVML there is only what CUDA shows");
    }

    #[test]
    fn hidden_devices_stay_hidden() {
        let known: Vec<String> = ["GPU-1", "MIG-2a", "MIG-2b"].map(str::to_owned).to_vec();
        let shown = [DeviceInfo::named(0, "MIG-2a")];
        assert_eq!(hidden(&known, &shown, Some("mig-2A, MIG-2b")), ["MIG-2b"]);
        assert!(hidden(&known, &shown, Some("0,1")).is_empty());
        assert!(hidden(&known, &shown, Some("")).is_empty());
    }
}
