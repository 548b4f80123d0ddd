// Requests to the server that the page was loaded from, and the error messages for failed ones.

const base = new URL(".", document.baseURI);
let aheadMs = 0; // how far the server's clock is ahead of the browser's

/** The current time on the server's clock, which the timestamps of entries use. */
export function now() {
  return Date.now() + aheadMs;
}

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The URL of an API path. */
export function address(path, parameters = {}) {
  const url = new URL(`api/${path}`, base);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export function sessionPath(id, rest = "") {
  return `sessions/${id.split("/").map(encodeURIComponent).join("/")}${rest}`;
}

/** The value of a JSON text. An integer beyond the safe range keeps its digits, so that the arguments of a call
 * are shown, approved and sent back unchanged. */
export function parse(text) {
  return JSON.rawJSON && /\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_, value, { source }) {
  const isTooLarge = typeof value === "number" && /^-?\d+$/.test(source) && !Number.isSafeInteger(value);
  return isTooLarge ? JSON.rawJSON(source) : value;
}

async function request(path, parameters, options) {
  let response;
  try {
    response = await fetch(address(path, parameters), { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  const ahead = Date.parse(response.headers.get("date")) - Date.now();
  aheadMs = Math.abs(ahead) > 5000 ? ahead : 0; // the header only has a resolution of one second
  const value = await response.text().then(parse).catch(() => ({}));
  if (!response.ok) {
    const error = value.error ?? {};
    throw new ApiError(response.status, error.code ?? "", error.message ?? `The server answered ${response.status}.`);
  }
  return value;
}

export const get = (path, parameters) => request(path, parameters, {});
export const post = (path, body) =>
  request(path, {}, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
export const remove = (path) => request(path, {}, { method: "DELETE" });
