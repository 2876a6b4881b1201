// One kept output: to download, and to look at. Those of host programs are files, the others are arrays.

import { useState } from "preact/hooks";

import type { Output } from "../api/types";
import { bytes } from "../format";
import { me } from "../session";
import { Preview } from "./preview";
import { Text } from "./text";
import { At } from "./time";

export function KeptOutput({ job, output, isFile }: { job: string; output: Output; isFile: boolean }) {
  const [isShown, setShown] = useState(false);
  const path = `/outputs/${job}/${encodeURIComponent(output.name)}`;
  const canRead = !output.is_expired && (!output.digest || me.value?.has_blobs);
  return (
    <div class="output">
      <p>
        <strong>
          <Text>{output.name}</Text>
        </strong>{" "}
        {isFile ? <span>{bytes(output.shape[0])}</span> : <span class="mono">{`${output.dtype}[${output.shape.join(", ")}]`}</span>}{" "}
        <span class="faint">
          {output.is_expired ? "expired " : "until "}
          <At at={output.expires_at} />
          {output.digest ? ", in the blob store" : ", in the ledger"}
        </span>
      </p>
      {canRead && (
        <p class="actions">
          <a class="button" href={isFile ? `${path}?format=file` : path} download>
            {isFile ? "Download" : "Download .npy"}
          </a>
          {!isFile && (
            <button type="button" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
              {isShown ? "Hide preview" : "Preview"}
            </button>
          )}
        </p>
      )}
      {!canRead && !output.is_expired && <p class="faint">The console has no blob store; use the command below.</p>}
      {isShown && <Preview path={`${path}?format=raw`} output={output} />}
    </div>
  );
}
