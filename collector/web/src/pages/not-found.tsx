export function NotFoundPage() {
  return (
    <div class="page-scroll">
      <div class="empty-page">
        <h2>No page at this address</h2>
        <p>The link may be cut. All captures are in the <a href="/captures">list</a>.</p>
      </div>
    </div>
  );
}
