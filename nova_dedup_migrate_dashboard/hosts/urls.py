# SPDX-License-Identifier: Apache-2.0
from django.urls import path

from nova_dedup_migrate_dashboard.hosts import views

urlpatterns = [path('', views.IndexView.as_view(), name='index')]
