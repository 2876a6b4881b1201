//! Each rule about who may ask what, one by one.

mod service;

use gpufleet_console::access::Identity;
use gpufleet_service::tokens::Tokens;
use reqwest::{StatusCode, header};
use service::{Options, Service, TOKEN, answer, status};

#[tokio::test]
async fn without_actions_only_get_and_head_are_allowed() {
    let service = Service::start(Options::default()).await;
    for path in ["/", "/api/v1/jobs", "/live", "/actions/cancel", "/session", "/assets/x"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"] {
            assert_eq!(status(service.request(method, path)).await, 405, "{method} {path}");
        }
    }
    assert_eq!(status(service.act()).await, 405);
    let refused = answer(service.request("DELETE", "/api/v1/jobs")).await;
    assert_eq!(refused.headers()[header::ALLOW], "GET, HEAD");
    assert_eq!(status(service.get("/api/v1/jobs")).await, 200);
    assert_eq!(status(service.request("HEAD", "/api/v1/jobs")).await, 200);
}

#[tokio::test]
async fn with_actions_only_posts_of_the_own_origin_are_allowed() {
    let service = Service::start(Options { actions: true, ..Options::default() }).await;
    // It is let in; there is no broker.
    assert_eq!(status(service.act()).await, 503);
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        assert_eq!(status(service.request(method, "/actions/cancel")).await, 405, "{method}");
    }
    for method in ["POST", "DELETE"] {
        assert_eq!(status(service.request(method, "/api/v1/jobs")).await, 405, "{method}");
    }
    assert_eq!(status(service.request("POST", "/actions/cancel")).await, 403, "no origin");
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        let request = service.request("POST", "/actions/cancel").header(header::ORIGIN, origin);
        assert_eq!(status(request).await, 403, "{origin}");
    }
    let own = format!("http://{}", service.address);
    for site in ["cross-site", "same-site", "none"] {
        let request = service.request("POST", "/actions/cancel").header(header::ORIGIN, &own);
        assert_eq!(status(request.header("sec-fetch-site", site)).await, 403, "{site}");
    }
    // What a form of another site could send without asking first.
    let form = service.request("POST", "/actions/cancel").header(header::ORIGIN, &own);
    assert_eq!(status(form.header(header::CONTENT_TYPE, "text/plain").body("{}")).await, 415);
}

#[tokio::test]
async fn data_is_not_for_pages_of_other_sites() {
    let service = Service::start(Options::default()).await;
    for path in ["/api/me", "/api/v1/jobs", "/live?topic=broker", "/outputs/x/y"] {
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(service.get(path).header("sec-fetch-site", site)).await, 403, "{path} {site}");
        }
    }
    assert_eq!(status(service.get("/").header("sec-fetch-site", "cross-site")).await, 200, "a link to the console");
}

#[tokio::test]
async fn requests_for_unknown_hosts_are_refused() {
    let hosts = vec!["console.example".to_owned()];
    let service = Service::start(Options { hosts, actions: true, ..Options::default() }).await;
    for known in ["localhost", "console.example", "console.example:8080", "[::1]:1", "10.0.0.1"] {
        assert_eq!(status(service.get("/api/me").header(header::HOST, known)).await, 200, "{known}");
    }
    for unknown in ["evil.example", "console.example.evil.example"] {
        for path in ["/", "/api/me", "/api/v1/jobs", "/live?topic=broker"] {
            assert_eq!(status(service.get(path).header(header::HOST, unknown)).await, 421, "{unknown} {path}");
        }
        let rebound = service.act().header(header::ORIGIN, format!("http://{unknown}"));
        assert_eq!(status(rebound.header(header::HOST, unknown)).await, 421, "{unknown}");
    }
}

#[tokio::test]
async fn a_token_is_exchanged_for_a_cookie_and_nothing_else_opens_data() {
    let tokens = Tokens::of(TOKEN).unwrap();
    let service = Service::start(Options { identity: Identity::Tokens(tokens), ..Options::default() }).await;
    let guarded = ["/api/me", "/api/v1/jobs", "/api/dead", "/live?topic=broker", "/outputs/x/y"];
    for path in guarded {
        assert_eq!(status(service.get(path)).await, 401, "{path}");
        assert_eq!(status(service.get(path).bearer_auth(TOKEN)).await, 401, "{path}: a token is no session");
    }
    assert_eq!(status(service.get("/")).await, 200, "the application has no data");
    let challenge = answer(service.get("/api/me")).await.headers()[header::WWW_AUTHENTICATE].clone();
    assert_eq!(challenge, "Bearer", "the sign-in page asks for a token");
    assert_eq!(status(service.get("/session")).await, 401);
    assert_eq!(status(service.get("/session").bearer_auth("0123456789abcdef-other")).await, 401);
    let session = answer(service.get("/session").bearer_auth(TOKEN)).await;
    assert_eq!(session.status(), 200);
    let cookie = session.headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("canary"),
        "{cookie}"
    );
    let pair = cookie.split(';').next().unwrap();
    for path in ["/api/me", "/api/v1/jobs"] {
        assert_eq!(status(service.get(path).header(header::COOKIE, pair)).await, 200, "{path}");
    }
    let forged = format!("{pair}0");
    assert_eq!(status(service.get("/api/me").header(header::COOKIE, forged)).await, 401);
}

#[tokio::test]
async fn the_name_of_a_viewer_counts_from_a_trusted_proxy_only() {
    let proxy =
        |network: &str| Identity::Proxy { header: "x-user".parse().unwrap(), networks: vec![network.parse().unwrap()] };
    let behind = Service::start(Options { identity: proxy("127.0.0.0/8"), ..Options::default() }).await;
    let me: String = answer(behind.get("/api/me").header("x-user", "ann")).await.text().await.unwrap();
    assert!(me.contains("\"viewer\":\"ann\""), "{me}");
    let unnamed = answer(behind.get("/api/me")).await;
    assert_eq!((unnamed.status(), unnamed.headers().get(header::WWW_AUTHENTICATE)), (StatusCode::UNAUTHORIZED, None));
    let around = Service::start(Options { identity: proxy("10.0.0.0/8"), ..Options::default() }).await;
    assert_eq!(status(around.get("/api/me").header("x-user", "ann")).await, 401);
}

#[tokio::test]
async fn every_answer_keeps_foreign_content_out() {
    let service = Service::start(Options::default()).await;
    for path in ["/", "/jobs/x", "/api/v1/jobs", "/api/none", "/assets/none.js"] {
        let answer = answer(service.get(path)).await;
        let headers = answer.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'self'") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{path}: {policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        assert!(!headers.contains_key("access-control-allow-origin"), "{path}");
    }
    assert_eq!(answer(service.get("/api/v1/jobs")).await.headers()[header::CACHE_CONTROL], "no-store");
}

#[tokio::test]
async fn only_paths_of_the_read_api_are_passed_on() {
    let service = Service::start(Options::default()).await;
    for path in ["/api/openapi.json", "/api/v2/jobs", "/api/v1", "/api/v1/../healthz"] {
        assert_eq!(status(service.get(path)).await, 404, "{path}");
    }
    assert_eq!(status(service.get("/live")).await, 400);
    let refused = ["/healthz", "/v1/../healthz", "/v1/%252e%252e/healthz"].map(|topic| format!("topic={topic}"));
    let mut stream = answer(service.get(&format!("/live?{}", refused.join("&")))).await;
    let mut seen = String::new();
    while seen.matches("gpufleet:not-found").count() < refused.len() {
        seen += std::str::from_utf8(&stream.chunk().await.unwrap().expect("the stream goes on")).unwrap();
    }
    assert_eq!(service.asked(), 0);
}
