/** Where an address leads to nothing: what is missing, and a way on. */
export function NotFoundPage(props: { title?: string; said?: string | undefined; to?: string; where?: string }) {
  return (
    <div class="page-scroll">
      <div class="empty-page" role="alert">
        <h1>{props.title ?? "No page at this address"}</h1>
        <p>{props.said ?? "The link may be cut."}</p>
        <p><a href={props.to ?? "/captures"}>{props.where ?? "All captures"}</a></p>
      </div>
    </div>
  );
}
