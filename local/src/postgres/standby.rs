//! A streaming standby of a private server, for tests of what reads from one.

use std::sync::Arc;

use super::{COMMAND_WITHIN, Postgres, SUPERUSER, output};
use crate::{error::LocalError, ports, state::StateDir};

impl Postgres {
    /// Starts a standby of this server in a state directory of its own. It replays what the server writes and answers queries, but
    /// accepts no writes. Its databases and users are those of the server.
    pub async fn start_standby(&self, state: &Arc<StateDir>) -> Result<Self, LocalError> {
        let standby = Self::at(state, self.password.clone(), ports::free()?, self.shared_buffers)?;
        standby.create_own(&[&standby.data_dir(), &standby.socket_dir()])?;
        let mut backup = standby.command("pg_basebackup")?;
        backup.arg("--pgdata").arg(standby.data_dir()).arg("--host").arg(self.socket_dir());
        backup.args(["--port", &self.port().to_string(), "--username", SUPERUSER, "--no-password"]);
        backup.args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]);
        output(backup, "pg_basebackup", COMMAND_WITHIN).await?;
        standby.launch_repeatedly().await?;
        Ok(standby)
    }
}
