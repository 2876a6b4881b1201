//! A broker behind TLS: an untrusted certificate is an error that names the cause; with a trusted one everything works
//! as without TLS.

use std::fs;

use gpufleet_local::Signal;
use gpufleet_tests::{Ended, Ground, TlsProxy, gpufleet_command};

/// The file of certificate authorities that a program trusts in place of the system's.
const TRUSTED: &str = "SSL_CERT_FILE";

async fn submit(proxy: &TlsProxy, trusted: Option<&str>) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("x.bin"), [1.0_f32, 2.0].map(f32::to_le_bytes).concat()).unwrap();
    let environment = [("GPUFLEET_AMQP_URL", Some(proxy.url())), (TRUSTED, trusted)];
    let environment: Vec<_> = environment.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let saxpy = ["submit", "saxpy", "--arg", "a=2.0", "--in", "x=x.bin:f32[2]", "--inout", "y=x.bin:f32[2]"];
    gpufleet_command(folder.path(), &environment, &saxpy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_over_tls_if_client_and_worker_trust_the_certificate() {
    let ground = Ground::shared("tls").await;
    let proxy = ground.tls_proxy().await;
    let trusted = proxy.certificate().to_str().unwrap();
    let worker = ground.worker_in(&["--amqp-url", proxy.url()], &[(TRUSTED, trusted)]).await;
    let ended = submit(&proxy, Some(trusted)).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("succeeded"), "{ended:?}");
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_an_untrusted_certificate_is_refused_with_advice() {
    let ground = Ground::shared("tls-untrusted").await;
    let proxy = ground.tls_proxy().await;
    let ended = submit(&proxy, None).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    for said in ["TLS", "UnknownIssuer", TRUSTED] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}
