// Requests to the server the page came from, and what to say when they fail.

const base = new URL(".", document.baseURI);

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The address of a path of the API. */
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

async function request(path, parameters, options) {
  let response;
  try {
    response = await fetch(address(path, parameters), { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  const value = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = value.error ?? {};
    throw new ApiError(response.status, error.code ?? "", error.message ?? `The server answered ${response.status}.`);
  }
  return value;
}

export const get = (path, parameters) => request(path, parameters, {});
export const post = (path, body) =>
  request(path, {}, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
