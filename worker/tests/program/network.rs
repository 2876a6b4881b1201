//! Without `network`, a program reaches nothing but itself.

use std::net::TcpListener;

use crate::harness::Work;

fn connect(port: u16) -> String {
    format!(
        "import socket\n\
         try: socket.create_connection(('127.0.0.1', {port}), 5)\n\
         except OSError as error: print(error)\n\
         else: print('connected')\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_reaches_the_machine_only_if_its_task_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut work = Work::python(&connect(port));
    let output = work.succeed().await;
    assert!(output.contains("refused"), "{output}");
    work = Work::python(&connect(port));
    work.spec.network = true;
    assert_eq!(work.succeed().await, "connected\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_processes_of_a_program_can_use_its_own_loopback() {
    let script = "import socket\n\
                  server = socket.create_server(('127.0.0.1', 0))\n\
                  socket.create_connection(server.getsockname())\n\
                  print(sorted(name for _, name in socket.if_nameindex()))\n";
    let output = Work::python(script).succeed().await;
    assert!(output.contains("lo") && !output.contains("eth"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn abstract_sockets_of_the_machine_are_closed_without_the_network() {
    use std::os::{linux::net::SocketAddrExt as _, unix::net};
    let work = Work::python("");
    let name = crate::harness::unique(&work.spec.folder);
    let address = net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = net::UnixListener::bind_addr(&address).unwrap();
    let script = format!(
        "import socket\n\
         try: socket.socket(socket.AF_UNIX).connect('\\0{name}')\n\
         except OSError: print('closed')\n"
    );
    assert_eq!(Work::python(&script).succeed().await, "closed\n");
}
