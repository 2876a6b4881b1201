import "./app.css";

import { render } from "preact";

import { App } from "./app";
import { identify } from "./session";

void identify();
render(<App />, document.getElementById("app")!);
