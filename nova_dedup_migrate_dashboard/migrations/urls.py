# SPDX-License-Identifier: Apache-2.0
from django.urls import path

from nova_dedup_migrate_dashboard.migrations import views

urlpatterns = [
    path('', views.IndexView.as_view(), name='index'),
    path('<uuid:uuid>/', views.DetailView.as_view(), name='detail'),
]
