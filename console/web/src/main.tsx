import "./app.css";

import { render } from "preact";

import { App } from "./app";
import { enter } from "./session";

void enter();
render(<App />, document.getElementById("app")!);
