// The frame of every page: navigation, what is wrong at the moment, and the page for the path.

import { useEffect } from "preact/hooks";
import { Link, Route, Switch, useLocation } from "wouter-preact";

import { Banner, Liveness } from "./parts/banner";
import { Help, helpIsOpen } from "./parts/help";
import { Search } from "./parts/search";
import { SignIn } from "./parts/sign-in";
import { nextTheme, theme } from "./parts/theme";
import { DeadPage } from "./pages/dead";
import { JobPage } from "./pages/job";
import { JobsPage } from "./pages/jobs";
import { KernelsPage } from "./pages/kernels";
import { OverviewPage } from "./pages/overview";
import { PoolsPage } from "./pages/pools";
import { UsagePage } from "./pages/usage";
import { WorkersPage } from "./pages/workers";
import { locked, me, signOut } from "./session";

/** Each page with its key after `g`. */
export const PAGES = [
  { path: "/", title: "Overview", key: "o" },
  { path: "/jobs", title: "Jobs", key: "j" },
  { path: "/workers", title: "Workers", key: "w" },
  { path: "/pools", title: "Pools", key: "p" },
  { path: "/dead", title: "Dead letters", key: "d" },
  { path: "/kernels", title: "Kernels", key: "k" },
  { path: "/usage", title: "Usage", key: "u" },
];

const THEMES = { system: "system", light: "light", dark: "dark" };

export function App() {
  const [path, navigate] = useLocation();
  useShortcuts(navigate);
  useEffect(() => {
    const page = PAGES.find((page) => isAt(path, page.path));
    document.title = page && page.path !== "/" ? `${page.title} · gpufleet` : "gpufleet";
    scrollTo(0, 0);
  }, [path]);
  if (locked.value) return <SignIn />;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <nav class="nav" aria-label="Pages">
        <Link class="brand" href="/">
          <img src="/icon.svg" alt="" width="20" height="20" />
          gpufleet
        </Link>
        <ul>
          {PAGES.map((page) => (
            <li key={page.path}>
              <Link href={page.path} aria-current={isAt(path, page.path) ? "page" : undefined}>
                {page.title}
              </Link>
            </li>
          ))}
        </ul>
        <div class="nav-foot">
          <Liveness />
          <button type="button" class="quiet" onClick={nextTheme}>
            Colours: {THEMES[theme.value]}
          </button>
          <button type="button" class="quiet" onClick={() => (helpIsOpen.value = true)}>
            Keyboard <kbd>?</kbd>
          </button>
          {me.value && (
            <p class="faint who">
              {me.value.viewer}
              {me.value.actions ? "" : ", read-only"}
              {me.value.identity === "token" && (
                <button type="button" class="quiet" onClick={() => void signOut()}>
                  Sign out
                </button>
              )}
            </p>
          )}
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Banner />
        <Search />
        <Switch>
          <Route path="/" component={OverviewPage} />
          <Route path="/jobs" component={JobsPage} />
          <Route path="/jobs/:id">{({ id }) => <JobPage id={id} />}</Route>
          <Route path="/workers" component={WorkersPage} />
          <Route path="/pools" component={PoolsPage} />
          <Route path="/dead" component={DeadPage} />
          <Route path="/kernels" component={KernelsPage} />
          <Route path="/usage" component={UsagePage} />
          <Route>
            <h1>No such page</h1>
            <p>
              The console has no page at this path. <Link href="/">Overview</Link>
            </p>
          </Route>
        </Switch>
      </main>
      <Help />
    </>
  );
}

function isAt(path: string, page: string): boolean {
  return page === "/" ? path === "/" : path === page || path.startsWith(`${page}/`);
}

/** `g` and a letter open a page, `/` goes to the search box, `t` changes colours, `?` shows all of this. */
function useShortcuts(navigate: (path: string) => void): void {
  useEffect(() => {
    let isGoing = false;
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, dialog[open]")) return;
      const page = isGoing ? PAGES.find((page) => page.key === event.key) : undefined;
      isGoing = event.key === "g" && !isGoing;
      if (page) {
        event.preventDefault();
        // Rows have keys of their own.
        event.stopPropagation();
        navigate(page.path);
      } else if (event.key === "/") {
        event.preventDefault();
        const box = document.querySelector<HTMLInputElement>("[role=search] input");
        box?.focus();
        box?.select();
      } else if (event.key === "t") nextTheme();
      else if (event.key === "?") helpIsOpen.value = true;
    };
    addEventListener("keydown", onKeyDown, { capture: true });
    return () => removeEventListener("keydown", onKeyDown, { capture: true });
  }, [navigate]);
}
